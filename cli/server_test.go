package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/graph"
	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/versions"
	"github.com/rockpool/rockpool/server/routes"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/wait"
)

// A server is a server with a fake cluster. It doesn't require a token yet.
type server struct {
	t      *testing.T
	url    string
	token  string // the file of what commands show; "" means nothing
	engine *engine.Engine
	fake   *clustertest.Fake
}

func newServer(t *testing.T) *server {
	t.Helper()
	return newServerWith(t, nil)
}

// newServerWith returns a server with the given languages.
func newServerWith(t *testing.T, languages *language.Set) *server {
	t.Helper()
	for _, name := range []string{"ROCKPOOL_TOKEN", "ROCKPOOL_TOKEN_FILE", "ROCKPOOL_SERVER"} {
		t.Setenv(name, "")
	}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	fake := clustertest.NewFake()
	var eng *engine.Engine
	registry := identity.New(identity.Config{Store: db, Open: true, Key: make([]byte, 32), Logger: zap.NewNop(), Free: func(ctx context.Context, id runtime.TenantID) error { return eng.FreeTenant(ctx, id) }})
	if err := registry.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	log, err := audit.New(audit.Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	eng = engine.New(fake, db, engine.Config{Dir: t.TempDir(), Logger: zap.NewNop(), Callers: registry, Audit: log})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- eng.Run(ctx) }()
	go func() { ended <- log.Run(ctx) }()
	<-eng.Restored()
	if languages == nil {
		languages = language.Default()
	}
	measured, links, admission := versions.New(&eng.Services, languages), download.NewLinks(nil), &routes.Admission{Registry: registry}
	at := httptest.NewServer(routes.New(routes.Options{
		API: graph.Handler(graph.Options{
			Engine: &eng.Services, Links: links, Languages: languages, Versions: measured, Logger: zap.NewNop(), Settings: transport.Settings{Admit: admission.Admit}.WithDefaults(),
		}),
		Downloads: download.Handler{Links: links, Files: eng.Files, Outputs: eng.Executions, Callers: admission, Refuse: transport.Presenter{Logger: zap.NewNop()}.Refuse},
		Admission: admission, Health: eng.Health,
	}))
	t.Cleanup(func() {
		stop()
		at.Close()
		<-ended
		<-ended
		if err := errors.Join(fake.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return &server{t: t, url: at.URL, engine: eng, fake: fake}
}

func (s *server) command(arguments ...string) (out, errs string, code int) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	code = execute(nil, &stdout, &stderr, s.arguments(arguments)...)
	return stdout.String(), withoutWaiting(stderr.String()), code
}

var waitingLine = regexp.MustCompile(`(?m)^rockpool: waiting for a runner of \S+ \(.*\)\n`)

// withoutWaiting removes the line about a claim that takes longer than 300 ms, as on a busy machine.
func withoutWaiting(errs string) string { return waitingLine.ReplaceAllString(errs, "") }

func (s *server) arguments(all []string) []string {
	all = append(all, "--server", s.url)
	if s.token != "" {
		all = append(all, "--token-file", s.token)
	}
	return all
}

// A runningCommand is a running command whose output can be read.
type runningCommand struct {
	out, errs sharedBuffer
	code      chan int
}

// start starts a command.
func (s *server) start(arguments ...string) *runningCommand {
	r := &runningCommand{code: make(chan int, 1)}
	go func() { r.code <- execute(nil, &r.out, &r.errs, s.arguments(arguments)...) }()
	return r
}

// interrupts sends SIGINT to the command, which must wait for it, and returns its exit code.
func (r *runningCommand) interrupts(t *testing.T) int {
	t.Helper()
	if err := unix.Kill(os.Getpid(), unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	return wait.Receive(t, r.code, "the command ends")
}

// A sharedBuffer is a buffer for concurrent use.
type sharedBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *sharedBuffer) has(t *testing.T, text string) {
	t.Helper()
	wait.For(t, "the output has "+text, func() bool { return strings.Contains(b.String(), text) })
}

func (s *server) works(arguments ...string) string {
	s.t.Helper()
	out, errs, code := s.command(arguments...)
	if code != 0 || errs != "" {
		s.t.Fatalf("%v: %d %s", arguments, code, errs)
	}
	return out
}

func (s *server) fails(says string, arguments ...string) {
	s.t.Helper()
	if out, errs, code := s.command(arguments...); code == 0 || !strings.Contains(errs, says) {
		s.t.Errorf("%v: %d %s %s, want %q", arguments, code, out, errs, says)
	}
}

// as makes later commands use a token or a grant.
func (s *server) as(text string) {
	s.t.Helper()
	s.token = filepath.Join(s.t.TempDir(), "token")
	if err := os.WriteFile(s.token, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}
