package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/client"
)

func terminalRows() []Row {
	return []Row{{
		Name:  "keystroke",
		What:  "From writeStdin (POST) of one key into a terminal in which `cat` runs, until its echo is on a WebSocket.",
		Floor: "A bare pseudo-terminal on this machine: a byte is written to its master, and the echo read there.",
		Unit:  Milliseconds, Per: "key",
		Open: openKeystroke,
	}}
}

func openKeystroke(ctx context.Context, b *bed) (pair, error) {
	s, runner, err := b.claimed(ctx, 0)
	if err != nil {
		return pair{}, err
	}
	k, err := s.dial(ctx)
	if err != nil {
		return pair{}, err
	}
	b.onClose(func() error { k.close(); return nil })
	execution, err := client.Start(ctx, s, client.StartExecutionInput{RunnerId: runner, Command: []string{"cat"}, Terminal: &client.TerminalInput{Columns: 80, Rows: 24}})
	if err != nil {
		return pair{}, err
	}
	if err := k.subscribe(ctx, execution); err != nil {
		return pair{}, err
	}
	master, err := openTerminal()
	if err != nil {
		return pair{}, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	b.onClose(master.Close)
	n := b.ops(100)
	row := func(ctx context.Context, r *round) error {
		return repeat(n, func() error { return r.time(func() error { return typeKey(ctx, s, k, execution) }) })
	}
	floor := func(_ context.Context, r *round) error {
		return repeat(n, func() error { return r.time(func() error { return echoKey(master) }) })
	}
	return pair{row: row, floor: floor}, warm(ctx, row, floor)
}

func typeKey(ctx context.Context, s *target, k *socket, execution string) error {
	if _, err := client.WriteStdin(ctx, s, client.WriteStdinInput{ExecutionId: execution, Text: new("x")}); err != nil {
		return err
	}
	message, err := k.output(ctx)
	if err == nil && !bytes.Contains(message, []byte(`"text":"x"`)) {
		err = fmt.Errorf("the echo is %.200q", message)
	}
	return err
}

// A pseudoTerminal is both ends of one.
type pseudoTerminal struct{ master, slave *os.File }

// openTerminal opens a pseudo-terminal that echoes.
func openTerminal() (*pseudoTerminal, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	return &pseudoTerminal{master, slave}, nil
}

func (p *pseudoTerminal) Close() error { return errors.Join(p.slave.Close(), p.master.Close()) }

func echoKey(p *pseudoTerminal) error {
	if _, err := p.master.WriteString("x"); err != nil {
		return err
	}
	_, err := p.master.Read(make([]byte, 16))
	return err
}
