/** To which tenant something belongs, and whether others may use it. */
export function Owner({ tenant, shared = false }: { tenant: string; shared?: boolean }) {
  return (
    <span className="owner" title={shared ? `Of tenant ${tenant}; every tenant may use it` : `Of tenant ${tenant}`}>
      {tenant}
      {shared && ", shared"}
    </span>
  );
}
