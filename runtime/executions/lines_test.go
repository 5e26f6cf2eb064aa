package executions

import (
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/logdir"
	"github.com/rockpool/rockpool/runtime/output"
	"github.com/rockpool/rockpool/runtime/session"
)

// Reads of a log take the turns of its tenant while the execution runs, too.
func TestLinesOfARunningLogAreOfItsTenant(t *testing.T) {
	dir := t.TempDir()
	r := NewRegistry(Config{Logs: logdir.New(dir, logdir.Options{Logger: zap.NewNop()})})
	host := session.Host{Logger: zap.NewNop()}
	x := runtime.Execution{ID: runtime.NewExecutionID(), Tenant: "physics", State: runtime.ExecutionRunning}
	r.Add(host.New(runtime.Runner{}, x, session.Begin{}, output.New(output.File(filepath.Join(dir, "log")))))
	lines := NewService(audit.NewAuthorizer(nil), r)
	if _, err := lines.Lines(access.With(t.Context(), access.Server()), x.ID, LineQuery{MaxLines: 1}); err != nil {
		t.Fatal(err)
	}
	if got := r.lines.entry(lineSource{ID: x.ID}).tenant; got != x.Tenant {
		t.Errorf("its index is of tenant %q, want %q", got, x.Tenant)
	}
}
