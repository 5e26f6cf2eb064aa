package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"syscall"

	"github.com/rockpool/rockpool/test/nomadtest"
)

// obey writes where a Nomad is, then carries out the orders that it reads, one per line: kill,
// restart, freeze or thaw the server or the client. It answers each with a line of JSON.
func obey(ctx context.Context, n *nomadtest.Nomad, from io.Reader, to io.Writer) error {
	answers := json.NewEncoder(to)
	if err := answers.Encode(map[string]string{"address": n.Address(), "dir": n.Dir()}); err != nil {
		return err
	}
	orders := map[string]func() error{
		"kill server":    n.KillServer,
		"kill client":    n.KillClient,
		"restart server": func() error { return n.RestartServer(ctx) },
		"restart client": func() error { return n.RestartClient(ctx) },
		"kill docker":    n.KillDocker,
		"restart docker": func() error { return n.RestartDocker(ctx) },
		"freeze server":  func() error { return n.SignalServer(syscall.SIGSTOP) },
		"freeze client":  func() error { return n.SignalClient(syscall.SIGSTOP) },
		"thaw server":    func() error { return n.SignalServer(syscall.SIGCONT) },
		"thaw client":    func() error { return n.SignalClient(syscall.SIGCONT) },
	}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		answer := map[string]string{}
		if order := orders[lines.Text()]; order == nil {
			answer["error"] = fmt.Sprintf("no order: %q", lines.Text())
		} else if err := order(); err != nil {
			answer["error"] = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}
