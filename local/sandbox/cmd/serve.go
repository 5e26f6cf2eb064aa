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

	"github.com/rockpool/rockpool/local/network/fence"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// A server makes and removes sandboxes, in this process, for the process that started it
// and has the other end of descriptor 3. It ends when that does, as soon as it has done
// what it was asked for. Sandboxes stay.
type server struct {
	config helper.Config
	trees  cgroup.Hierarchies
	ended  atomic.Bool // nobody waits for answers any more

	opening sync.Mutex // guards maker; held while its mounts are made
	maker   *maker.Maker

	mu   sync.Mutex               // guards last
	last map[string]chan struct{} // by sandbox: closed once its last order is carried out
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
	// Its memory is for a while that of first processes, which have other users.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide its memory: %w", err)
	}
	s := &server{config: c, last: map[string]chan struct{}{}}
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
		packet, files, err := helper.Receive(requests)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		order, err := helper.ParseOrder(packet)
		if err != nil {
			reply(files, failed(err))
			_ = closeFiles(files) // they were only used
			continue
		}
		turn, end := s.queue(order.ID)
		working.Go(func() {
			defer end()
			defer func() { _ = closeFiles(files) }() // they were only used
			<-turn
			if !s.ended.Load() { // else what is left of the sandbox is the next server's to remove
				s.answer(order, files)
			}
		})
	}
}

// open returns the maker. It makes one with the first sandbox: a server removes sandboxes
// before it has built the root directory.
func (s *server) open() (*maker.Maker, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.maker != nil {
		return s.maker, nil
	}
	c := s.config
	plain := spec.New(spec.Sandbox{Root: spec.Root{Path: c.Root}, Group: c.Parent, Resources: spec.Resources{Processes: 1}}, c.Machine)
	made, err := maker.New(c.Root, plain)
	if err != nil {
		return nil, err
	}
	s.maker = made
	return made, nil
}

// end ends the processes of a sandbox if this process made it.
func (s *server) end(id string) error {
	s.opening.Lock()
	made := s.maker
	s.opening.Unlock()
	if made == nil {
		return nil
	}
	return made.End(id)
}

// queue has a sandbox's orders carried out one by one, as they came: a remove that came after
// a create must find what that made. Turn is closed when it is this one's turn.
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

func closeFiles(files []*os.File) (failed error) {
	for _, f := range files {
		failed = errors.Join(failed, f.Close())
	}
	return failed
}

// answer does what is asked, and says so on the first of the descriptors that came along.
func (s *server) answer(order *helper.Order, files []*os.File) {
	if len(files) == 0 {
		return
	}
	answer, err := s.obey(order, files[1:])
	if err != nil {
		answer = failed(err)
	}
	if !reply(files, answer) && err == nil && order.Command == helper.Create { // nobody waits for it any more
		_ = s.remove(order)
	}
	if errors.Is(err, maker.ErrUnclean) {
		fmt.Fprintln(os.Stderr, "rockpool-sandbox:", err)
		os.Exit(1) // another maker goes on
	}
}

// reply reports whether the one that asked got the answer, on the first of the descriptors.
func reply(files []*os.File, answer helper.Answer) bool {
	text, err := json.Marshal(answer)
	return err == nil && len(files) > 0 && unix.Send(int(files[0].Fd()), text, unix.MSG_NOSIGNAL) == nil
}

func failed(err error) helper.Answer {
	var final finalError
	return helper.Answer{Error: err.Error(), Final: errors.As(err, &final), Changed: errors.Is(err, fence.ErrChanged)}
}

func (s *server) obey(order *helper.Order, files []*os.File) (answer helper.Answer, err error) {
	switch {
	case order.Command == helper.Remove:
		return helper.Answer{}, s.remove(order)
	case !order.Made() || len(files) != 1:
		return helper.Answer{}, fmt.Errorf("a maker doesn't serve %q with %d descriptors", order.Command, len(files))
	}
	c := s.config
	c.Parent = order.Parent
	if there, err := s.trees.Exists(c.Group(order.ID)); err != nil || there {
		return helper.Answer{}, errors.Join(err, fmt.Errorf("sandbox %s is there already", order.ID))
	}
	by, err := s.open()
	if err != nil {
		return helper.Answer{}, err
	}
	answer, err = makeSandbox(c, &order.Request, s.trees, by, files[0])
	if err != nil {
		return helper.Answer{}, errors.Join(err, s.remove(order))
	}
	return answer, nil
}

func (s *server) remove(order *helper.Order) error {
	if err := s.end(order.ID); err != nil {
		return err
	}
	c := s.config
	c.Parent = order.Parent
	return remove(c, &order.Request, s.trees)
}
