import type { ServerError } from "../../lib/request";
import { Failure, Notice } from "../../ui/parts";

export interface PutStateProps {
  /** The image whose registry hasn't responded yet; "" for none. */
  silent: string;
  error: ServerError | undefined;
  retry: () => void;
}

/** PutState shows that saving is delayed by a registry, or why it failed. */
export function PutState({ silent, error, retry }: PutStateProps) {
  return (
    <>
      {silent !== "" && <Notice kind="warn">{`The registry of the image ${silent} hasn't responded yet. Still waiting.`}</Notice>}
      <Failure error={error} {...(error?.retryable && { retry })} />
    </>
  );
}
