import { useEffect, useId, useRef, useSyncExternalStore, type ReactNode } from "react";
import { Link } from "wouter";
import type { ServerError } from "../lib/request";
import { session } from "../lib/session";
import { ChangeToken } from "./changetoken";
import { SafeText } from "./safetext";

export interface PageProps {
  title: string;
  /** The parent page. */
  above?: { title: string; href: string };
  actions?: ReactNode;
  children: ReactNode;
}

/** Page is a page with its heading and actions. It sets the document's title. */
export function Page({ title, above, actions, children }: PageProps) {
  useEffect(() => {
    document.title = `${title} · Rockpool`;
  }, [title]);
  return (
    <main id="main" tabIndex={-1}>
      <header className="head">
        {above && (
          <nav className="crumbs small" aria-label="Breadcrumb">
            <Link href={above.href}>{above.title}</Link>
          </nav>
        )}
        <h1>{title}</h1>
        {actions && <div className="row">{actions}</div>}
      </header>
      {children}
    </main>
  );
}

export interface CardProps {
  title?: ReactNode;
  aside?: ReactNode;
  children: ReactNode;
  bare?: boolean;
}

/** Card is a titled section. `bare` leaves out the padding. */
export function Card({ title, aside, children, bare }: CardProps) {
  const id = useId();
  return (
    <section className="card" aria-labelledby={title ? id : undefined}>
      {title && (
        <header className="card-head">
          <h2 id={id}>{title}</h2>
          {aside}
        </header>
      )}
      {bare ? children : <div className="card-body">{children}</div>}
    </section>
  );
}

export interface NoticeProps {
  kind?: "bad" | "warn" | "good";
  children: ReactNode;
  action?: ReactNode;
}

/** Notice shows a message in a box; kind "bad" is announced as an alert. */
export function Notice({ kind, children, action }: NoticeProps) {
  return (
    <div className={`notice ${kind ?? ""}`} role={kind === "bad" ? "alert" : "status"}>
      <span className="grow">{children}</span>
      {action}
    </div>
  );
}

/** Failure shows an error and what to do. While the prompt for a token is open, UNAUTHENTICATED shows nothing. */
export function Failure({ error, retry }: { error: ServerError | undefined; retry?: () => void }) {
  const prompted = useSyncExternalStore(session.listen, session.tokenRequired);
  if (!error || (prompted && error.code === "UNAUTHENTICATED")) return null;
  if (error.code === "UNAUTHENTICATED") {
    return (
      <Notice kind="warn" action={<ChangeToken />}>
        This page needs a token. Ask an administrator of the server for one.
      </Notice>
    );
  }
  if (error.code === "FORBIDDEN") {
    return (
      <Notice kind="warn" action={<ChangeToken />}>
        <SafeText text={error.message} />. Ask an administrator for a token with this permission.
      </Notice>
    );
  }
  return (
    <Notice
      kind="bad"
      action={
        retry && (
          <button type="button" className="button small" onClick={retry}>
            Try again
          </button>
        )
      }
    >
      <SafeText text={error.message} />
    </Notice>
  );
}

/** Empty replaces an empty view, and says what to do. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** Loading is the placeholder while `what` loads. */
export function Loading({ what }: { what: string }) {
  return (
    <div className="loading" role="status">
      <span>Loading {what} …</span>
    </div>
  );
}

export type Tone = "good" | "warn" | "bad" | "busy" | "quiet";

/** Tag shows a state as a short coloured text. */
export function Tag({ tone, children }: { tone: Tone; children: ReactNode }) {
  return <span className={`tag ${tone}`}>{children}</span>;
}

export interface DialogProps {
  title: string;
  open: boolean;
  onClose: () => void;
  children: ReactNode;
}

/**
 * Dialog is a modal dialog, which Escape closes. Browsers fire the close event late, when this or another dialog can
 * already be open again. So it ignores the event after a close by the parent.
 */
export function Dialog({ title, open, onClose, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    if (!dialog) return;
    if (open && !dialog.open) dialog.showModal();
    if (!open && dialog.open) dialog.close();
  }, [open]);
  return (
    <dialog
      ref={ref}
      className="dialog"
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClose={(event) => open && !event.currentTarget.open && onClose()}
    >
      {open && (
        <div>
          <h2 id={id}>{title}</h2>
          {children}
        </div>
      )}
    </dialog>
  );
}

export interface FieldProps {
  label: string;
  hint?: ReactNode;
  error?: string | undefined;
  wide?: boolean;
  /** Whether it is a checkbox: its label then follows it. */
  check?: boolean;
  /** Renders the control with the attributes that connect it to its label, hint and error. */
  children: (tie: { id: string; "aria-describedby": string | undefined; "aria-invalid": boolean | undefined }) => ReactNode;
}

/** Field is a form control with its label, hint and error. */
export function Field({ label, hint, error, wide, check, children }: FieldProps) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-wrong`].filter(Boolean).join(" ") || undefined;
  const control = children({ id, "aria-describedby": described, "aria-invalid": error ? true : undefined });
  const name = <label htmlFor={id}>{label}</label>;
  return (
    <div className={`field ${wide ? "wide" : ""}`}>
      {check ? (
        <div className="check">
          {control}
          {name}
        </div>
      ) : (
        <>
          {name}
          {control}
        </>
      )}
      {error && (
        <span className="wrong" id={`${id}-wrong`} role="alert">
          {error}
        </span>
      )}
      {hint && (
        <span className="hint" id={`${id}-hint`}>
          {hint}
        </span>
      )}
    </div>
  );
}

/** Facts lists pairs of a name and a value. */
export function Facts({ children }: { children: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {children.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
