// Advice that is written for the terminal, on a page: options of a plan have fields here.

/** Words of the page for options whose fields have another name. */
export interface FieldNames {
  repeats: string;
  hosts: string;
  /** What an option is called that no field has. */
  terminal: (option: string) => string;
}

/** Options in advice that are fields of a form. Others are the terminal's: a field that is not there misleads. */
const FIELDS = new Set(
  (
    'bytes cold congestion-control count credit depth durable-at durable-within link max omit orders pattern ' +
    'player-cap player-threads procedure rate receive-buffer request-within search search-time send-buffer size ' +
    'stagger threads time window'
  ).split(' '),
);

/** Names fields instead of options: `--search-time` becomes “search time”. Pure, so that it can be tested. */
export function inFields(advice: string, names: FieldNames): string {
  return advice.replace(/--([a-z][a-z-]*[a-z])/g, (option, name: string) => {
    if (name === 'repeat') return `“${names.repeats}”`;
    if (name === 'place') return `“${names.hosts}”`;
    return FIELDS.has(name) ? `“${name.replaceAll('-', ' ')}”` : names.terminal(option);
  });
}
