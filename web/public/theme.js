// Sets the chosen theme before the first paint.
try {
  const theme = localStorage.getItem("rockpool.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the page uses the system theme.
}
