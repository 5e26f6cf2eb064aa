package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/attack"
	"github.com/rockpool/rockpool/runtime"
)

// attackedBed runs a server of its own, whose programs are these, while use
// runs; nil are those that were built in.
func attackedBed(t *testing.T, name string, programs *programs, use func(ctx context.Context, server *Server)) {
	t.Helper()
	config := Config{Listen: "127.0.0.1:0", Data: dataDir(t), MaxBody: 32 << 20, CPUOvercommit: 250, MemoryOvercommit: 8, KeepEvaluations: 300, KeepAllocations: 300, AlertThreshold: 0.5, AlertTimeout: 1, CgroupParent: e2eCgroups + "-" + name, LogLevel: "warn", LogFormat: "console"}
	if err := config.Check(); err != nil {
		t.Fatal(err)
	}
	server := NewServer(config, zap.NewNop())
	server.programs = programs
	if err := server.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left := leftovers(config.Data, config.CgroupParent); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}()
	<-server.Engine.Restored()
	use(t.Context(), server)
}

// TestE2EAttacks carries out the whole corpus.
func TestE2EAttacks(t *testing.T) {
	rows := attack.Corpus()
	if only := os.Getenv("ATTACK"); only != "" { // to look at one
		rows = nil
		for _, row := range attack.Corpus() {
			if regexp.MustCompile(only).MatchString(row.Name) {
				rows = append(rows, row)
			}
		}
	}
	attackedBed(t, "attacks", nil, func(ctx context.Context, server *Server) {
		began := time.Now()
		report, err := attackServer(ctx, server.config, server.Client(), runtime.IsolationNamespaces, rows, attack.Place{}, func(r attack.Result) {
			if !r.Held {
				t.Errorf("%s %q (%s): %s%s\n%s", r.Class, r.Name, r.Defence, r.Why, r.Skipped, r.Seen)
			}
			t.Logf("%s %s %d ms", r.Class, r.Name, r.Millis)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(fmt.Sprintf("%d of %d held in %s", report.Held, report.Tried, time.Since(began)))
	})
}
