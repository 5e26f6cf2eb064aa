import type { ServerError } from "../../lib/ask";
import { Failure, Notice } from "../../ui/parts";

export interface PutStateProps {
  /** The image whose registry has not answered yet; "": none. */
  silent: string;
  error: ServerError | undefined;
  retry: () => void;
}

/** What became of a put that isn't answered yet, or failed. */
export function PutState({ silent, error, retry }: PutStateProps) {
  return (
    <>
      {silent !== "" && <Notice kind="warn">{`No answer yet about the image ${silent} from its registry.`}</Notice>}
      <Failure error={error} {...(error?.retryable && { retry })} />
    </>
  );
}
