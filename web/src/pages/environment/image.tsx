import { bytes, plural } from "../../lib/format";
import type { Pool } from "../../lib/pools";
import { Notice } from "../../ui/parts";

/** How far the machine is with the image of an environment; nothing where that has none. */
export function ImageState({ image, served }: { image: Pool["image"]; served: boolean }) {
  if (!image) return null;
  const instead = served ? " The revision before is served meanwhile." : "";
  if (image.state === "FAILED") return <Notice kind="bad">{`The image is unavailable: ${image.reason}.${instead}`}</Notice>;
  if (image.state === "READY") {
    return (
      <p className="soft small">
        Its image is here: <code>{image.digest}</code>, {plural(image.layers, "layer")}.
      </p>
    );
  }
  const layers = image.layers > 0 ? `: ${image.layersDone} of ${plural(image.layers, "layer")}, ${bytes(image.bytesDone)} of ${bytes(image.bytes)}` : "";
  return (
    <div className="stack tight" role="status">
      <span className="small">{`The image is being pulled${layers}.${instead}`}</span>
      <progress aria-label="The image's bytes" value={image.bytesDone} max={Math.max(image.bytes, 1)} />
    </div>
  );
}
