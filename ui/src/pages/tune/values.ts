// Names and values of settings, as far as the page can judge them. The server has the last word.

import type { Setting } from '../../server/types.ts';

const WHOLE = /^[+-]?\d+$/;
const QUANTITY = /^[+-]?[\d._]+([kMGT]|[KMGT]i)?B?$/;

/** Whether `value` is within the range that the server describes; `null`: the page cannot tell. */
export function isAllowed(range: string, value: string): boolean | null {
  const parts = value.split(/[\s,]+/).filter(Boolean);
  const choices = /^one of (.+)$/.exec(range)?.[1]?.split(', ');
  if (choices) {
    if (parts.length !== 1) return false;
    // Of one that is not loaded, the server says how to load it.
    return choices.includes(parts[0] ?? '') ? true : null;
  }
  const isSwitch = range.startsWith('0 (off) or 1 (on)');
  const three = /^three rising numbers from (-?\d+) to (-?\d+)/.exec(range);
  const [, min, max] = isSwitch ? [range, '0', '1'] : (three ?? /^(-?\d+) to (-?\d+)( |$)/.exec(range) ?? []);
  if (min === undefined || max === undefined) return null;
  if (parts.length !== (three ? 3 : 1)) return false;
  if (!parts.every((part) => WHOLE.test(part))) {
    // Bytes may have a unit, which the server reads.
    return range.endsWith(' bytes') && parts.every((part) => QUANTITY.test(part)) ? null : false;
  }
  const numbers = parts.map(Number);
  const isWithin = numbers.every((number) => number >= Number(min) && number <= Number(max));
  return isWithin && numbers.every((number, at) => number >= (numbers[at - 1] ?? number));
}

/** The name without the path that all of them share. */
export const shortName = (name: string): string => name.replace(/^net\.(ipv4|core)\./, '');

/** The setting of a name, written with or without its path, with dots or slashes. */
export function settingOf(settings: readonly Setting[], name: string): Setting | null {
  const wanted = name.trim().replaceAll('/', '.').toLowerCase();
  const isIt = (one: Setting) =>
    one.name.toLowerCase() === wanted || shortName(one.name).toLowerCase() === wanted;
  return settings.find(isIt) ?? null;
}

export interface CandidateProblem {
  line: string;
  /** `null`: the line has no `=`. */
  name: string | null;
  /** The setting whose range the value is not within; `null`: there is no such setting. */
  setting: Setting | null;
}

/** What is wrong with candidates, of which each line has one or more as `NAME=VALUE`. */
export function candidateProblems(text: string, settings: readonly Setting[]): CandidateProblem[] {
  const parts = text
    .split(/[\n;]/)
    .map((line) => line.trim())
    .filter(Boolean);
  return parts.flatMap((line): CandidateProblem[] => {
    const [, name, value] = /^([^=]+)=(.*)$/.exec(line) ?? [];
    if (name === undefined || value === undefined) return [{ line, name: null, setting: null }];
    const setting = settingOf(settings, name);
    if (!setting) return [{ line, name: name.trim(), setting: null }];
    return isAllowed(setting.range, value) === false ? [{ line, name: name.trim(), setting }] : [];
  });
}
