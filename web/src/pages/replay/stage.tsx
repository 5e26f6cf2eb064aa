import { useEffect, useRef, useState } from "react";
import { copyText } from "../../lib/clipboard";
import { duration } from "../../lib/format";
import { Screen } from "../terminal/screen";
import { momentOf, positionOf, type Cast } from "./cast";
import { Painter } from "./painter";
import { Player } from "./player";

const speeds = [0.5, 1, 2, 4, 8];

/** Stage shows a recording on a screen, with the controls of the player. */
export default function Stage({ cast, moment }: { cast: Cast; /** The time of the execution in seconds at which it begins, paused. */ moment?: number | undefined }) {
  const host = useRef<HTMLDivElement>(null);
  const player = useRef<Player>(undefined);
  const [playing, setPlaying] = useState(moment === undefined);
  const [speed, setSpeed] = useState(1);
  const [position, setPosition] = useState(0);
  const [said, setSaid] = useState("");

  useEffect(() => {
    const screen = new Screen(() => {});
    screen.terminal.options.disableStdin = true;
    screen.terminal.resize(cast.columns, cast.rows);
    screen.open(host.current!, false);
    const painter = new Painter({
      reset: () => screen.terminal.reset(),
      resize: ({ columns, rows }) => screen.terminal.resize(columns, rows),
      write: (text, done) => screen.write(text, done),
    });
    player.current = new Player(cast, painter);
    player.current.seek(moment === undefined ? 0 : positionOf(cast, moment));
    setPosition(player.current.position);
    setPlaying(moment === undefined);
    return () => {
      painter.stop();
      screen.dispose();
    };
  }, [cast, moment]);

  useEffect(() => {
    if (!playing) return;
    let last: number | undefined; // the first frame's time can be before the effect's
    let frame = 0;
    const step = (now: number) => {
      player.current?.advance(((now - (last ?? now)) / 1000) * speed);
      last = now;
      setPosition(player.current?.position ?? 0);
      if (player.current?.ended) setPlaying(false);
      else frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [playing, speed, cast]);

  const seek = (to: number) => {
    player.current?.seek(to);
    setPosition(player.current?.position ?? 0);
  };
  const toggle = () => {
    if (!playing && player.current?.ended) seek(0);
    setPlaying(!playing);
  };
  const copy = async () => {
    const address = new URL(window.location.href);
    address.hash = `t=${Math.ceil(momentOf(cast, position) * 1000) / 1000}`; // rounded up, so that the link includes everything shown
    try {
      await copyText(address.href);
      setSaid("Copied");
    } catch (error) {
      setSaid((error as Error).message);
    }
  };
  const words = `${duration(position * 1000)} of ${duration(cast.duration * 1000)}`;
  return (
    <div className="stack">
      <div className="row">
        <button type="button" className="button primary" onClick={toggle}>
          {playing ? "Pause" : position >= cast.duration && cast.duration > 0 ? "Play again" : "Play"}
        </button>
        <input
          type="range"
          className="grow"
          aria-label="Position"
          aria-valuetext={words}
          min={0}
          max={cast.duration}
          step="any"
          value={position}
          onChange={(event) => seek(Number(event.target.value))}
        />
        <span className="num small nowrap" style={{ minWidth: "9rem", textAlign: "right" }}>
          {words}
        </span>
        <label>
          <span className="hidden-text">Speed</span>
          <select className="select fit" value={speed} onChange={(event) => setSpeed(Number(event.target.value))}>
            {speeds.map((times) => (
              <option key={times} value={times}>
                {times}×
              </option>
            ))}
          </select>
        </label>
        <button type="button" className="button" onClick={() => void copy()}>
          Copy link to this moment
        </button>
        <span className="small soft" role="status">
          {said}
        </span>
      </div>
      <div className="replay-box" tabIndex={0} role="region" aria-label="Recording">
        <div ref={host} />
      </div>
    </div>
  );
}
