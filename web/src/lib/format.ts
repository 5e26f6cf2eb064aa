// Formats numbers, sizes and times for people.

import { visible } from "./visible";

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** count formats a number with separators and at most one decimal. */
export function count(n: number): string {
  return number.format(n);
}

/** plural formats a number with its noun: "1 runner", "2 runners". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** loadedOf describes how much of a list is loaded: "100 of 300 runners; scrolling loads more". */
export function loadedOf(loaded: number, total: number, one: string): string {
  return loaded < total ? `${count(loaded)} of ${plural(total, one)}; scrolling loads more` : plural(total, one);
}

/** bytes formats a size in binary units: "1.5 MiB". */
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) {
    n /= 1024;
    at++;
  }
  return `${at === 0 ? n : n.toPrecision(3).replace(/\.?0+$/, "")} ${units[at]}`;
}

/** duration formats milliseconds in the one or two largest fitting units: "1 h 5 min". */
export function duration(ms: number): string {
  if (ms < 0) ms = 0;
  if (ms < 1) return ms === 0 ? "0 ms" : `${Math.max(1, Math.round(ms * 1000))} µs`;
  if (ms < 1000) return `${ms < 10 ? number.format(ms) : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1).replace(/\.?0+$/, "")} s`;
  const seconds = Math.round(ms / 1000);
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor((seconds % 86400) / 3600), "h"],
    [Math.floor((seconds % 3600) / 60), "min"],
    [seconds % 60, "s"],
  ] as const;
  const from = parts.findIndex(([n]) => n > 0);
  return parts.slice(from, from + 2).filter(([n]) => n > 0).map(([n, unit]) => `${n} ${unit}`).join(" ");
}

/** seconds formats a time limit in seconds; 0 means no limit. */
export function seconds(n: number): string {
  return n === 0 ? "none" : duration(n * 1000);
}

/** moment formats a time: the time of day if it is today, else with the day. */
export function moment(time: string, now = Date.now()): string {
  const at = new Date(time);
  return new Date(now).toDateString() === at.toDateString() ? clock.format(at) : day.format(at);
}

/** dated formats a time with its day, for table columns; with the year unless it is the current one. */
export function dated(time: string, now = Date.now()): string {
  const at = new Date(time);
  return new Date(now).getFullYear() === at.getFullYear() ? day.format(at) : `${at.getFullYear()} ${day.format(at)}`;
}

/** between returns the milliseconds between two times of the API, with their nanoseconds. */
export function between(from: string, to: string): number {
  return precise(to) - precise(from);
}

/** precise parses a time to milliseconds. It keeps their fractions, which Date drops. */
function precise(time: string): number {
  const fraction = /\.(\d+)Z?$/.exec(time)?.[1] ?? "";
  const whole = Date.parse(time.replace(/\.\d+/, ""));
  return whole + Number(`0.${fraction || "0"}`) * 1000;
}

/** ago formats the distance from now: "5 s ago", "in 2 min", "now". */
export function ago(time: string, now = Date.now()): string {
  const ms = now - Date.parse(time);
  if (Math.abs(ms) < 1500) return "now";
  return ms > 0 ? `${coarse(ms)} ago` : `in ${coarse(-ms)}`;
}

/** lasting formats the time since a moment. */
export function lasting(since: string, now = Date.now()): string {
  return coarse(Math.max(0, now - Date.parse(since)));
}

/** coarse formats a duration of under a minute in whole seconds. */
function coarse(ms: number): string {
  return ms < 60_000 ? `${Math.round(ms / 1000)} s` : duration(ms);
}

/** short returns the last 8 characters of a long id: neighbouring ids differ there. */
export function short(id: string): string {
  return id.length > 12 ? `…${id.slice(-8)}` : id;
}

/** commandText shortens a command line for a heading or a row, and marks invisible characters. */
export function commandText(line: string, longest = 200): string {
  return visible(line.trim().slice(0, longest));
}
