/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The development server forwards API requests to a running Rockpool server.
const server = process.env.ROCKPOOL_SERVER ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  server: { proxy: { "/graphql": { target: server, ws: true }, "/auth": server, "/files": server, "/outputs": server } },
  build: {
    outDir: ".out",
    emptyOutDir: true,
    manifest: true,
    target: "es2023",
    assetsInlineLimit: 0, // the pages' policy allows nothing that stands in them
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 8000, // build/budget.mjs has the budgets
    rolldownOptions: { input: ["index.html", "graphiql.html"] },
  },
  worker: { format: "es" },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}", "build/*.test.mjs"], setupFiles: ["build/unit.mjs"], restoreMocks: true, testTimeout: 120_000 },
});
