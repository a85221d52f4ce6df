import { defineConfig } from 'vite';

// The server sends a content policy without inline scripts and styles: everything is a file of its own.
export default defineConfig({
  base: '/',
  build: {
    target: 'es2023',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // Only the files that a browser loads: no source maps.
    sourcemap: false,
  },
});
