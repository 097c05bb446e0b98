// A classic script that blocks: a chosen theme must be set before the first paint.
(() => {
  const root = document.documentElement;
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  try {
    const kept = localStorage.getItem("pathe-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch {
    // Storage may be blocked: the theme then follows the system.
  }
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => (button.textContent = dark() ? "Light theme" : "Dark theme");
    name();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try {
        localStorage.setItem("pathe-theme", root.dataset.theme);
      } catch {
        // Not kept, but it holds for this visit.
      }
      name();
    });
  });
})();
