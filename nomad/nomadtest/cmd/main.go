// Nomadtest runs a real Nomad as the tests have it, by hand: make nomad.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rockpool/rockpool/nomad/nomadtest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	drivers := flag.String("drivers", "raw_exec,exec", "task drivers that are on; docker needs docker.io")
	acl := flag.Bool("acl", false, "demand tokens")
	tls := flag.Bool("tls", false, "demand certificates")
	control := flag.Bool("control", false, "for a program: say where it is as JSON, take lines such as \"kill server\", and end with the input")
	connections := flag.Int("connections", 0, "http_max_conns_per_client (2000)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	n, err := nomadtest.Open(ctx, nomadtest.Options{Drivers: strings.Split(*drivers, ","), ACL: *acl, TLS: *tls, Connections: *connections})
	if err != nil {
		return err
	}
	if *control {
		return errors.Join(obey(ctx, n, os.Stdin, os.Stdout), n.Close())
	}
	fmt.Printf("A Nomad runs at %s, until ^C. For its own command (scripts/nomad says where it is):\n\n", n.Address())
	fmt.Printf("  export NOMAD_ADDR=%s\n", n.Address())
	if n.Token() != "" {
		fmt.Printf("  export NOMAD_TOKEN=%s   # with the policy of docs/nomad.md\n", n.Token())
		fmt.Printf("  export NOMAD_TOKEN=%s   # for everything\n", n.ManagementToken())
	}
	if ca, cert, key := n.TLS(); ca != "" {
		fmt.Printf("  export NOMAD_CACERT=%s NOMAD_CLIENT_CERT=%s NOMAD_CLIENT_KEY=%s\n", ca, cert, key)
	}
	fmt.Print("\nRockpool reads the same variables:\n\n  bin/rockpool serve --cluster nomad --advertise-url http://127.0.0.1:8080\n\n")
	<-ctx.Done()
	fmt.Println("ending it")
	return n.Close()
}
