package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network/firewall"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// A server makes and removes sandboxes in this process, for the process that started it and holds
// the other end of descriptor 3. It ends when that end is closed, after the requests that it is
// serving. Sandboxes stay.
type server struct {
	config helper.Config
	trees  cgroup.Hierarchies
	ended  atomic.Bool // the other end is closed

	opening sync.Mutex // guards maker and init; held while the maker is made
	maker   *maker.Maker
	init    *os.File // the program of process 1 of cells

	mu    sync.Mutex               // guards the fields below
	last  map[string]chan struct{} // by sandbox: closed when its last order is done
	slots map[string]*slot         // of cells, by id
}

// serveMaker serves until the other end closes descriptor 3.
func serveMaker(config string) error {
	if err := prepare(); err != nil {
		return err
	}
	c, err := helper.ReadConfig(config)
	if err != nil {
		return err
	}
	// First processes share its memory for a while, under other users: no other process may read it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process undumpable: %w", err)
	}
	s := &server{config: c, last: map[string]chan struct{}{}, slots: map[string]*slot{}}
	if s.trees, err = cgroup.Mounted(); err != nil {
		return err
	}
	if err := openRun(true); err != nil {
		return err
	}
	file := os.NewFile(3, "requests")
	conn, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	requests := conn.(*net.UnixConn)
	var working sync.WaitGroup
	defer working.Wait()
	defer s.ended.Store(true)
	for {
		packet, files, err := helper.Receive(requests, 2)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		order, err := helper.ParseOrder(packet)
		if err != nil {
			reply(files, failed(err))
			helper.CloseAll(files)
			continue
		}
		// Queueing here, not in the goroutine, keeps the order of arrival.
		turn, end := s.queue(order.ID)
		working.Go(func() {
			defer end()
			defer helper.CloseAll(files)
			<-turn
			if !s.ended.Load() { // else the next server removes what is left
				s.answer(order, files)
			}
		})
	}
}

// open returns the maker. It makes it for the first sandbox, because sandboxes may be removed
// before the root directory is built.
func (s *server) open() (*maker.Maker, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.maker != nil {
		return s.maker, nil
	}
	c := s.config
	plain := spec.New(spec.Sandbox{Root: spec.Root{Path: c.Root}, Group: c.Parent, Resources: spec.Resources{Processes: 1}}, c.Machine)
	if err := spec.MakeViews(); err != nil {
		return nil, err
	}
	made, err := maker.New(c.Root, plain)
	s.maker = made
	return made, err
}

// end ends the processes of a sandbox, if this process made it.
func (s *server) end(id string) error {
	s.opening.Lock()
	made := s.maker
	s.opening.Unlock()
	if made == nil {
		return nil
	}
	return made.End(id)
}

// queue orders the requests for a sandbox by arrival: a remove after a create must find what that
// made. The channel turn is closed when it is this request's turn. The caller must call end.
func (s *server) queue(id string) (turn <-chan struct{}, end func()) {
	ended := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	before, waits := s.last[id]
	if !waits {
		before = make(chan struct{})
		close(before)
	}
	s.last[id] = ended
	return before, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last[id] == ended {
			delete(s.last, id)
		}
		close(ended)
	}
}

// answer performs an order, and sends the answer on the first descriptor that came with it.
func (s *server) answer(order *helper.Order, files []*os.File) {
	if len(files) == 0 {
		return
	}
	answer, rights, err := s.perform(order, files[1:])
	if err != nil {
		answer = failed(err)
	}
	sent := reply(files, answer, rights...)
	helper.CloseAll(rights)
	if !sent && err == nil && (order.Command == helper.Create || order.Command == helper.Cell) { // the client is gone
		_ = s.remove(order)
	}
	if errors.Is(err, maker.ErrUnclean) {
		fmt.Fprintln(os.Stderr, "rockpool-sandbox:", err)
		os.Exit(1) // another maker is started
	}
}

// reply sends the answer, with descriptors, on the first descriptor, and reports whether it arrived.
func reply(files []*os.File, answer helper.Answer, with ...*os.File) bool {
	text, _ := json.Marshal(answer) // it can't fail
	var rights []byte
	if len(with) > 0 {
		fds := make([]int, len(with))
		for i, f := range with {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	return len(files) > 0 && unix.Sendmsg(int(files[0].Fd()), text, rights, nil, unix.MSG_NOSIGNAL) == nil
}

func failed(err error) helper.Answer {
	_, final := errors.AsType[finalError](err)
	return helper.Answer{Error: err.Error(), Final: final, Changed: errors.Is(err, firewall.ErrChanged)}
}

// perform performs an order. After a failed create it removes what is left.
func (s *server) perform(order *helper.Order, files []*os.File) (answer helper.Answer, rights []*os.File, err error) {
	c := s.config
	c.Parent = order.Parent
	switch {
	case order.Command == helper.Remove:
		return helper.Answer{}, nil, s.remove(order)
	case order.Command == helper.EndCell:
		answer, err = s.endCell(c, &order.Request)
		return answer, nil, err
	case !order.ByMaker() || len(files) != 1:
		return helper.Answer{}, nil, fmt.Errorf("a maker doesn't serve %q with %d descriptors", order.Command, len(files))
	}
	by, err := s.open()
	if err != nil {
		return helper.Answer{}, nil, err
	}
	if order.Command == helper.Cell {
		return s.cell(c, &order.Request, by, files[0])
	}
	if there, err := s.trees.Exists(c.Group(order.ID)); err != nil || there {
		return helper.Answer{}, nil, errors.Join(err, fmt.Errorf("sandbox %s exists already", order.ID))
	}
	answer, err = makeSandbox(c, &order.Request, s.trees, by, files[0])
	if err != nil {
		return helper.Answer{}, nil, errors.Join(err, s.remove(order))
	}
	return answer, nil, nil
}

// remove ends a sandbox's processes, then removes what is left of the sandbox.
func (s *server) remove(order *helper.Order) error {
	s.mu.Lock()
	if sl := s.slots[order.ID]; sl != nil {
		sl.counter.Close()
		delete(s.slots, order.ID)
	}
	s.mu.Unlock()
	if err := s.end(order.ID); err != nil {
		return err
	}
	c := s.config
	c.Parent = order.Parent
	return remove(c, &order.Request, s.trees)
}
