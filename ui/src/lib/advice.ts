// Advice that is written for the terminal, on a page: options of a plan have fields here.

/** Words of the page for options whose fields have another name. */
export interface FieldNames {
  repeats: string;
  hosts: string;
  /** What an option is called that no field has. */
  terminal: (option: string) => string;
}

/** Options of the terminal that no plan has. */
const TERMINAL_ONLY = ['ceiling', 'resume', 'quick', 'full', 'json', 'duration'];

/** Names fields instead of options: `--search-time` becomes “search time”. Pure, so that it can be tested. */
export function inFields(advice: string, names: FieldNames): string {
  return advice.replace(/--([a-z][a-z-]*[a-z])/g, (option, name: string) => {
    if (TERMINAL_ONLY.includes(name)) return names.terminal(option);
    if (name === 'repeat') return `“${names.repeats}”`;
    if (name === 'place') return `“${names.hosts}”`;
    return `“${name.replaceAll('-', ' ')}”`;
  });
}
