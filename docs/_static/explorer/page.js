// The parts of the page by name, and numbers as it writes them.

export const root = document.querySelector(".explorer");
export const part = (name) => root.querySelector(`[data-part="${name}"]`);
export const field = (name) => root.querySelector(`[name="${name}"]`);

export const decimals = (value, digits = 4) =>
  Number.isFinite(value) ? value.toFixed(digits).replace("-", "−") : "none";
