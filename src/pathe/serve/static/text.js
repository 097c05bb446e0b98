/** Numbers and counts as text. */

const whole = new Intl.NumberFormat("en");
const one = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
const none = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });

export const number = (n) => whole.format(n);

/** A probability. Very small and very large ones aren't rounded to 0% or 100%. */
export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1%";
  if (share < 1 && share > 0.999) return "> 99.9%";
  return one.format(share);
}

export const roundPercent = (share) => none.format(share);

export const score = (value) => value.toFixed(2).replace("-", "−");

export const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);

export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
