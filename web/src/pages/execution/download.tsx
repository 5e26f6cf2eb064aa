import { request } from "../../lib/request";
import { graphql } from "../../lib/graphql";
import { useAction } from "../../lib/hooks";
import { visible } from "../../lib/visible";

const OutputURLQuery = graphql(`
  query OutputURL($id: ID!) {
    execution(id: $id) {
      outputUrl
    }
  }
`);

/**
 * DownloadButton downloads the whole output, byte for byte. Its address expires after minutes, so each click
 * requests one.
 */
export function DownloadButton({ id }: { id: string }) {
  const download = useAction(async () => {
    const { execution } = await request(OutputURLQuery, { id });
    if (execution) save(execution.outputUrl, `${id}.txt`);
  });
  return (
    <button type="button" className="button small" disabled={download.busy} onClick={() => void download.run()} title={download.error && visible(download.error.message)}>
      {download.error ? "Download failed" : "Download"}
    </button>
  );
}

/** save makes the browser download an address to a file with this name. */
export function save(address: string, name: string) {
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
}
