import { render } from 'preact';

import { App } from './app.tsx';
import { startLanguage } from './i18n/index.ts';
import { startRouter } from './lib/router.ts';
import { startTheme } from './lib/theme.ts';
import './style/base.css';
import './style/controls.css';
import './style/elements.css';
import './style/pages.css';
import './style/forms.css';
import './style/narrow.css';

const root = document.getElementById('app');
startTheme();
startRouter();
startLanguage().then(() => {
  if (root) render(<App />, root);
});
