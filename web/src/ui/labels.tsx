import { Link } from "wouter";
import { withLabel, labelText, type Label } from "../lib/filter";
import { visible } from "../lib/visible";
import { SafeText } from "./safetext";

export interface LabelsProps {
  labels: readonly Label[];
  /** The table that a click filters: its path, and the filters that it has. */
  path: string;
  params?: URLSearchParams;
}

/** Labels shows labels. A click on one filters the table by it. */
export function Labels({ labels, path, params = new URLSearchParams() }: LabelsProps) {
  return labels.map((label) => (
    <Link key={label.name} className="chip mono" href={withLabel(path, params, label)} title={`${visible(labelText(label))}: show only rows with this label`}>
      <SafeText text={labelText(label)} />
    </Link>
  ));
}
