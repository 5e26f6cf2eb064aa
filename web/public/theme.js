// Before anything is painted: the theme that was chosen, if one was.
try {
  const theme = localStorage.getItem("rockpool.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is off: the system's theme it is.
}
