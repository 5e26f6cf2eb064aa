// Nomadtest runs the Nomad of the tests for a user: make nomad. With a command after its flags, it
// runs the command with that Nomad, and ends with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rockpool/rockpool/test/nomadtest"
)

func main() {
	err := run()
	var ended *exec.ExitError
	if errors.As(err, &ended) { // the command has printed why
		os.Exit(max(ended.ExitCode(), 1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run starts a Nomad, and stops it when the command, the input or a signal ends the program.
func run() error {
	drivers := flag.String("drivers", "raw_exec,exec", "task drivers that are on; docker needs docker.io")
	acl := flag.Bool("acl", false, "demand tokens")
	tls := flag.Bool("tls", false, "demand certificates")
	control := flag.Bool("control", false, "for a program: say where it is as JSON, take lines such as \"kill server\", and end with the input")
	connections := flag.Int("connections", 0, "http_max_conns_per_client (2000)")
	file := flag.String("file", "", "a file of the machine that tasks of exec and docker find at the same path")
	clients := flag.Int("clients", 1, "clients, which are nodes: 1 or 2")
	flag.Parse()
	var files []string
	if *file != "" {
		files = append(files, *file)
	}

	// SIGHUP too: closing a terminal would otherwise leave tasks and their executors.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	n, err := nomadtest.Open(ctx, nomadtest.Options{Drivers: strings.Split(*drivers, ","), ACL: *acl, TLS: *tls, Connections: *connections, Files: files})
	if err != nil {
		return err
	}
	if *clients > 1 {
		if err := n.AddClient(ctx); err != nil {
			return errors.Join(err, n.Close())
		}
	}
	if flag.NArg() > 0 {
		return errors.Join(use(ctx, n, flag.Args()), n.Close())
	}
	if *control {
		return errors.Join(obey(ctx, n, os.Stdin, os.Stdout), n.Close())
	}
	fmt.Printf("A Nomad runs at %s, until ^C. For its own command (scripts/nomad says where it is):\n\n", n.Address())
	fmt.Printf("  export NOMAD_ADDR=%s\n", n.Address())
	if n.Token() != "" {
		fmt.Printf("  export NOMAD_TOKEN=%s   # with the policy of docs/guides/nomad.md\n", n.Token())
		fmt.Printf("  export NOMAD_TOKEN=%s   # for everything\n", n.ManagementToken())
	}
	if ca, cert, key := n.TLS(); ca != "" {
		fmt.Printf("  export NOMAD_CACERT=%s NOMAD_CLIENT_CERT=%s NOMAD_CLIENT_KEY=%s\n", ca, cert, key)
	}
	first, _, _ := strings.Cut(*drivers, ",")
	fmt.Printf("\nRockpool reads the same variables:\n\n  bin/rockpool serve --cluster nomad --nomad-driver %s --advertise-url http://127.0.0.1:8080\n\n", first)
	<-ctx.Done()
	fmt.Println("ending it")
	return n.Close()
}

// use runs a command with a Nomad to the command's end. A signal is passed to the command, which
// ends first.
func use(ctx context.Context, n *nomadtest.Nomad, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+n.Address())
	if n.Token() != "" {
		cmd.Env = append(cmd.Env, "NOMAD_TOKEN="+n.Token())
	}
	if ca, cert, key := n.TLS(); ca != "" {
		cmd.Env = append(cmd.Env, "NOMAD_CACERT="+ca, "NOMAD_CLIENT_CERT="+cert, "NOMAD_CLIENT_KEY="+key)
	}
	return cmd.Run()
}
