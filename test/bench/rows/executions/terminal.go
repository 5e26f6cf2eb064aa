package executions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
	"github.com/rockpool/rockpool/test/bench/socket"
)

// Terminal returns the row of a key typed into a terminal.
func Terminal() []rows.Row {
	return []rows.Row{{
		Name:  "keystroke",
		What:  "From writeStdin (POST) of one key into a terminal with `cat` to its echo on a WebSocket.",
		Floor: "A bare pseudo-terminal on this machine: a byte is written to its master, and the echo read there.",
		Unit:  measure.Milliseconds, Per: "key",
		Open: openKeystroke,
	}}
}

// openKeystroke starts `cat` on a terminal, and opens the floor's pseudo-terminal.
func openKeystroke(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, runner, err := b.Claimed(ctx, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	k, err := s.Dial(ctx)
	if err != nil {
		return rows.Pair{}, err
	}
	b.OnClose(func() error { k.Close(); return nil })
	execution, err := client.Start(ctx, s, client.StartExecutionInput{RunnerId: runner, Command: []string{"cat"}, Terminal: &client.TerminalInput{Columns: 80, Rows: 24}})
	if err != nil {
		return rows.Pair{}, err
	}
	if err := k.Subscribe(ctx, execution); err != nil {
		return rows.Pair{}, err
	}
	master, err := openTerminal()
	if err != nil {
		return rows.Pair{}, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	b.OnClose(master.Close)
	n := b.Ops(100)
	row := func(ctx context.Context, r *measure.Round) error {
		return rows.Repeat(n, func() error { return r.Time(func() error { return typeKey(ctx, s, k, execution) }) })
	}
	floor := func(_ context.Context, r *measure.Round) error {
		return rows.Repeat(n, func() error { return r.Time(func() error { return echoKey(master) }) })
	}
	return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
}

// typeKey sends a key and reads its echo.
func typeKey(ctx context.Context, s *bed.Server, k *socket.Conn, execution string) error {
	if _, err := client.WriteStdin(ctx, s, client.WriteStdinInput{ExecutionId: execution, Text: new("x")}); err != nil {
		return err
	}
	message, err := k.Output(ctx)
	if err == nil && !bytes.Contains(message, []byte(`"text":"x"`)) {
		err = fmt.Errorf("the echo is %.200q", message)
	}
	return err
}

// A pseudoTerminal has both ends of a pseudo-terminal.
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

// echoKey writes a byte to the master and reads its echo there.
func echoKey(p *pseudoTerminal) error {
	if _, err := p.master.WriteString("x"); err != nil {
		return err
	}
	_, err := p.master.Read(make([]byte, 16))
	return err
}
