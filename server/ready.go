package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
)

// sayAfter is how long the first runner may take before announce prints why it isn't ready.
const sayAfter = 5 * time.Second

// announce prints to out when the server is ready: when its first runner is IDLE, when no pool
// keeps idle runners, or when the machine is being drained. Until then, it prints why no runner is
// ready, whenever the reason changes.
func announce(ctx context.Context, eng *engine.Engine, url string, out io.Writer) error {
	ctx, cancel := context.WithCancel(access.With(ctx, access.Server()))
	defer cancel()
	changes, err := eng.Environments.WatchPools(ctx, "")
	if err != nil {
		return err
	}
	pools := map[runtime.EnvironmentID]runtime.PoolStatus{}
	late := time.After(sayAfter)
	isLate, printed := false, ""
	for {
		select {
		case status, ok := <-changes:
			if !ok {
				return ctx.Err()
			}
			pools[status.EnvironmentID] = status
		case <-late:
			isLate = true
		}
		// A drained machine starts no runners, so none becomes idle until the drain ends.
		if eng.Draining() {
			_, err := fmt.Fprintf(out, "rockpool is ready: %s/graphql (the machine is being drained: no runner starts until %s drain --off%s)\n", url, os.Args[0], atServer(url))
			return err
		}
		environments, err := eng.Environments.List(ctx)
		if err != nil {
			return err
		}
		if ready(pools, len(environments)) {
			_, err := fmt.Fprintln(out, readyLine(os.Args[0], url, environments))
			return err
		}
		if reason := reasons(pools); isLate && reason != printed {
			_, _ = fmt.Fprintln(out, "rockpool can't start runners yet:", reason)
			printed = reason
		}
	}
}

// ready reports whether a runner is idle, or all pools are known and none keeps idle runners.
func ready(pools map[runtime.EnvironmentID]runtime.PoolStatus, known int) bool {
	wanted := 0
	for _, status := range pools {
		if status.Idle > 0 {
			return true
		}
		wanted += status.Size
	}
	return wanted == 0 && len(pools) >= known
}

// reasons returns why the pools have no idle runners, for people. It never returns "".
func reasons(pools map[runtime.EnvironmentID]runtime.PoolStatus) string {
	var all []string
	for id, status := range pools {
		if status.Reason != "" {
			all = append(all, fmt.Sprintf("%s: %s", id, status.Reason))
		}
	}
	if len(all) == 0 {
		return "they are still starting"
	}
	// A map has no order. Without sorting, announce would print the same reasons repeatedly.
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// readyLine returns the line that announces a ready server, with a first command to try.
func readyLine(program, url string, environments []runtime.Environment) string {
	names := make([]string, len(environments))
	for i, env := range environments {
		names[i] = string(env.ID)
	}
	if len(names) == 0 {
		return fmt.Sprintf("rockpool is ready: %[1]s/graphql (dashboard: %[1]s; no environments yet: create one in the dashboard or with `%[2]s env put%[3]s`)", url, program, atServer(url))
	}
	try := program + ` run` + atServer(url) + ` --env ` + names[0] + ` -- echo hello`
	if slices.Contains(names, "python") {
		try = program + " run" + atServer(url) + " hello.py"
	}
	return fmt.Sprintf("rockpool is ready: %[1]s/graphql (dashboard: %[1]s; environments: %[2]s; try: %[3]s)", url, strings.Join(names, ", "), try)
}

// defaultURL is the server that commands use without --server.
const defaultURL = "http://127.0.0.1:8080"

// atServer returns the flag that commands need to use the server at a URL.
func atServer(url string) string {
	if url == defaultURL {
		return ""
	}
	return " --server " + url
}

// notify sends a state to systemd through $NOTIFY_SOCKET; see sd_notify(3). Without the variable it
// does nothing.
func notify(state string) error {
	address := os.Getenv("NOTIFY_SOCKET") // @ at the start means an abstract socket; net does the same
	if address == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
