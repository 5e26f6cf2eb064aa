package files

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

// A watchReports collects the reports of a Watch.
type watchReports struct {
	t     *testing.T
	calls chan agent.Changes
	ended chan error
	stop  context.CancelFunc
}

// watch returns when all changes are being watched.
func watch(t *testing.T, f *Files, wanted agent.Watch) *watchReports {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &watchReports{t, make(chan agent.Changes), make(chan error, 1), stop}
	go func() {
		w.ended <- f.Watch(ctx, wanted, func(changes agent.Changes) error {
			select {
			case w.calls <- changes:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	t.Cleanup(stop)
	if first := wait.Receive(t, w.calls, "the beginning"); len(first.Changes) > 0 || first.Lost {
		t.Fatalf("began with %+v", first)
	}
	return w
}

// until collects changes as "+path", "-path" and "~path" until one of want is among them.
func (w *watchReports) until(want ...string) (all []string) {
	w.t.Helper()
	for !slices.ContainsFunc(want, func(one string) bool { return slices.Contains(all, one) }) {
		changes := wait.Receive(w.t, w.calls, fmt.Sprint(want))
		if changes.Lost {
			all = append(all, "lost")
		}
		for _, c := range changes.Changes {
			all = append(all, map[agent.ChangeKind]string{agent.ChangeCreated: "+", agent.ChangeRemoved: "-", agent.ChangeChanged: "~"}[c.Kind]+string(c.Path))
		}
	}
	return all
}

// end returns why the watch ended, and ignores its reports.
func (w *watchReports) end() (err error) {
	w.t.Helper()
	go func() {
		for range w.calls {
		}
	}()
	err = wait.Receive(w.t, w.ended, "its end")
	close(w.calls)
	return err
}

func try(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	f, dir := workspace(t, map[string]string{"old": "", "sub/": "", "sub/deep/x": ""})
	in := func(name string) string { return filepath.Join(dir, name) }
	flat, all := watch(t, f, agent.Watch{}), watch(t, f, agent.Watch{Recursive: true})
	step := func(want string, both bool, errs ...error) {
		t.Helper()
		try(t, errs...)
		if got := all.until(want); !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, want %s", got, want)
		}
		if both {
			if got := flat.until(want); !slices.Equal(got, []string{want}) {
				t.Errorf("flat: got %q, want %s", got, want)
			}
		}
	}
	step("+new", true, os.WriteFile(in("new"), nil, 0o644))
	step("~old", true, os.Truncate(in("old"), 5))
	step("~old", true, os.Chmod(in("old"), 0o600))
	step("-new", true, os.Remove(in("new")))
	step("+odd\xff\n", true, os.WriteFile(in("odd\xff\n"), nil, 0o644))
	step("+sub/deep/y", false, os.WriteFile(in("sub/deep/y"), nil, 0o644))
	try(t, os.WriteFile(in(temporaryPrefix+"1"), nil, 0o644))
	step("+put", true, os.Rename(in(temporaryPrefix+"1"), in("put")))

	// A directory that appears with contents, and a file that is created there afterwards.
	away := t.TempDir()
	try(t, os.MkdirAll(away+"/tree/a/b", 0o755), os.WriteFile(away+"/tree/a/f", nil, 0o644), os.Rename(away+"/tree", in("tree")))
	if got := slices.Sorted(slices.Values(all.until("+tree/a/b"))); !slices.Equal(got, []string{"+tree", "+tree/a", "+tree/a/b", "+tree/a/f"}) {
		t.Errorf("a tree that came: %q", got)
	}
	flat.until("+tree")
	step("+tree/a/b/g", false, os.WriteFile(in("tree/a/b/g"), nil, 0o644))

	// A renamed directory has its new path. One that was moved away isn't watched.
	try(t, os.Rename(in("sub"), in("bus")))
	all.until("+bus/deep/y")
	flat.until("+bus")
	step("+bus/deep/z", false, os.WriteFile(in("bus/deep/z"), nil, 0o644))
	try(t, os.Rename(in("bus"), away+"/bus"), os.WriteFile(away+"/bus/deep/secret", nil, 0o644), os.WriteFile(in("last"), nil, 0o644))
	if got := all.until("+last"); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "secret") }) {
		t.Errorf("what left was watched: %q", got)
	}
	flat.until("+last")

	try(t, os.RemoveAll(dir))
	for name, w := range map[string]*watchReports{"flat": flat, "all": all} {
		err := w.end()
		var e *agent.Error
		if !errors.As(err, &e) || e.Code != agent.ErrNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := f.watched.Load(); n != 0 {
		t.Errorf("%d directories still count, want 0", n)
	}
}

// A watch of something that isn't a directory is refused, and doesn't count for the limit.
func TestWatchRefusesUnsuitablePaths(t *testing.T) {
	f, dir := workspace(t, map[string]string{"file": "", "many/": ""})
	for i := range mostWatched {
		try(t, os.Mkdir(fmt.Sprintf("%s/many/%d", dir, i), 0o755))
	}
	try(t, os.Symlink("/proc/self", filepath.Join(dir, "self")))
	for _, test := range []struct {
		watch agent.Watch
		want  agent.ErrorCode
	}{
		{agent.Watch{Path: "none"}, agent.ErrNotFound}, {agent.Watch{Path: "file"}, agent.ErrWrongType}, {agent.Watch{Path: "/proc"}, agent.ErrDenied},
		{agent.Watch{Path: "self/cwd"}, agent.ErrDenied}, {agent.Watch{Recursive: true}, agent.ErrTooMany},
	} {
		var e *agent.Error
		err := f.Watch(t.Context(), test.watch, func(agent.Changes) error { return errors.New("it watches") })
		if !errors.As(err, &e) || e.Code != test.want {
			t.Errorf("%+v: %v", test.watch, err)
		}
	}
	if n := f.watched.Load(); n != 0 {
		t.Errorf("%d directories still count, want 0", n)
	}
}

// A watch ends when there are too many directories, rather than watching only a part.
func TestWatchOfAGrowingTree(t *testing.T) {
	f, dir := workspace(t, nil)
	f.watched.Store(mostWatched - 3) // by others
	w := watch(t, f, agent.Watch{Recursive: true})
	for i := range 3 {
		try(t, os.Mkdir(fmt.Sprintf("%s/%d", dir, i), 0o755))
	}
	err := w.end()
	var e *agent.Error
	if !errors.As(err, &e) || e.Code != agent.ErrTooMany {
		t.Error(err)
	}
}

// A flood of changes takes bounded memory and is reported as lost. Later changes are reported
// again.
func TestWatchFlood(t *testing.T) {
	f, dir := workspace(t, map[string]string{"d/": ""})
	w := watch(t, f, agent.Watch{Recursive: true})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 10_000 { // 30,000 events, of which the kernel holds 16,384
		name := fmt.Sprintf("%s/d/%s%d", dir, strings.Repeat("x", 200), i)
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		try(t, err, unix.Close(fd), unix.Unlink(name))
	}
	w.until("lost")
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("%d KiB more are held", grown>>10)
	}
	for i := 0; ; i++ { // the flood can be lost in parts: then a file is made after the part before it was reported
		name := fmt.Sprint("d/last", i)
		try(t, os.WriteFile(dir+"/"+name, nil, 0o644))
		got := w.until("+"+name, "lost")
		if n := len(got); n > agent.MaxChanges*2 {
			t.Errorf("%d changes", n)
		}
		if slices.Contains(got, "+"+name) {
			return
		}
	}
}

// The rules by which several changes of a path become one.
func TestPending(t *testing.T) {
	const c, m, r = agent.ChangeCreated, agent.ChangeChanged, agent.ChangeRemoved
	type kinds = []agent.ChangeKind
	for _, test := range []struct{ kinds, want, directory kinds }{
		{kinds{c, m}, kinds{c}, kinds{c}}, {kinds{c, r}, kinds{r}, kinds{r}}, {kinds{c, r, c}, kinds{c}, kinds{r, c}}, {kinds{m, m}, kinds{m}, kinds{m}},
		{kinds{m, r}, kinds{r}, kinds{r}}, {kinds{r, c}, kinds{m}, kinds{r, c}}, {kinds{r, c, r}, kinds{r}, kinds{r}}, {kinds{m, c}, kinds{c}, kinds{c}}, {kinds{r, m}, kinds{r}, kinds{r}},
	} {
		for directory, want := range map[bool]kinds{false: test.want, true: test.directory} {
			var p pendingChanges
			for _, kind := range test.kinds {
				p.add("p", kind, directory)
			}
			var got kinds
			for _, change := range p.take().Changes {
				got = append(got, change.Kind)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v of a directory, %v: %q, want %q", test.kinds, directory, got, want)
			}
		}
	}
	var p pendingChanges
	p.add("d/x", m, false)
	p.add("dx", m, false)
	for range agent.MaxChanges { // what was below the directory counts no longer
		p.add("d", r, true)
		p.add("d", c, true)
		p.add("d/x", c, false)
	}
	if all := p.take(); all.Lost || fmt.Sprintf("%s", all.Changes) != "[{dx changed} {d removed} {d created} {d/x created}]" {
		t.Errorf("%s", all.Changes)
	}
	for i := range 100_000 {
		p.add(fmt.Sprint(i), c, false)
		if len(p.order) > agent.MaxChanges || len(p.paths) > agent.MaxChanges {
			t.Fatalf("%d paths are held", len(p.order))
		}
	}
	if all := p.take(); !all.Lost || len(all.Changes) > 0 {
		t.Errorf("%+v", all)
	}
	p.add("x", m, false)
	if all := p.take(); all.Lost || len(all.Changes) != 1 {
		t.Errorf("afterwards: %+v", all)
	}
	p.add(strings.Repeat("x", mostPending+1), m, false)
	if all := p.take(); !all.Lost {
		t.Errorf("%d long paths", len(all.Changes))
	}
	for i := range agent.MaxChanges { // two changes of each would be too many for a frame
		p.add(fmt.Sprint(i), r, true)
		p.add(fmt.Sprint(i), c, true)
	}
	if all := p.take(); !all.Lost {
		t.Errorf("%d changes", len(all.Changes))
	}
}

// When an entry is replaced, its removal is reported, and the new entry is watched.
func TestWatchReportsWhatReplaces(t *testing.T) {
	f, dir := workspace(t, map[string]string{"b": "old", "new": "", "p/x": "", "q/y": "", "f": "1", "g": "2", "h/z": ""})
	in := func(name string) string { return filepath.Join(dir, name) }
	exchange := func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, in(a), unix.AT_FDCWD, in(b), unix.RENAME_EXCHANGE)
	}
	w := watch(t, f, agent.Watch{Recursive: true})
	try(t, os.Rename(in("new"), in("b")), os.Remove(in("b")), os.WriteFile(in("mark1"), nil, 0o644))
	if got := w.until("+mark1"); !slices.Contains(got, "-b") {
		t.Errorf("replaced, then deleted: %q", got)
	}
	try(t, exchange("p", "q"), exchange("f", "g"), os.WriteFile(in("mark2"), nil, 0o644))
	got := w.until("+mark2")
	for _, want := range []string{"-p", "+p", "+p/y", "-q", "+q", "+q/x", "+f", "+g"} {
		if !slices.Contains(got, want) {
			t.Errorf("exchanged: %q, without %s", got, want)
		}
	}
	try(t, os.WriteFile(in("p/1"), nil, 0o644), os.WriteFile(in("q/2"), nil, 0o644))
	w.until("+q/2") // after p/1, which comes first or with it
	try(t, exchange("f", "h"), os.WriteFile(in("f/3"), nil, 0o644))
	w.until("+f/3")
}

// endingContext is a context that ends after a number of checks.
type endingContext struct {
	context.Context
	left atomic.Int64
}

func (e *endingContext) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// The context ends a watch while it handles events and while it walks.
func TestWatchEndsInTheMiddle(t *testing.T) {
	for _, name := range []string{"events", "a walk"} {
		f, dir := workspace(t, nil)
		away := t.TempDir() + "/away"
		try(t, os.Mkdir(away, 0o755))
		for i := range 300 {
			try(t, os.WriteFile(fmt.Sprintf("%s/%d", away, i), nil, 0o644))
		}
		ctx := &endingContext{Context: t.Context()}
		ctx.left.Store(100)
		calls := 0
		err := f.Watch(ctx, agent.Watch{Recursive: true}, func(agent.Changes) error {
			if calls++; calls > 1 {
				return errors.New("it went on")
			}
			if name == "a walk" {
				return os.Rename(away, dir+"/here")
			}
			for i := range 300 {
				try(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644))
			}
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) || calls != 1 {
			t.Errorf("%s: %v, %d reports", name, err, calls)
		}
	}
	f, dir := workspace(t, nil)
	for i := range 300 {
		try(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644))
	}
	ctx := &endingContext{Context: t.Context()}
	ctx.left.Store(100)
	if err := f.Watch(ctx, agent.Watch{Recursive: true}, func(agent.Changes) error { return errors.New("it watches") }); !errors.Is(err, context.Canceled) {
		t.Errorf("the first walk: got %v, want %v", err, context.Canceled)
	}
}

// Events that would each cost a walk are dropped, and reported as lost.
func TestWatchWalksLittle(t *testing.T) {
	f, dir := workspace(t, map[string]string{"d/": ""})
	for i := range 400 {
		try(t, os.WriteFile(fmt.Sprintf("%s/d/%d", dir, i), nil, 0o644))
	}
	stopped := errors.New("enough was seen")
	calls, lost := 0, false
	err := f.Watch(t.Context(), agent.Watch{Recursive: true}, func(changes agent.Changes) error {
		if calls++; calls == 1 {
			for range 40 {
				try(t, os.Rename(dir+"/d", dir+"/e"), os.Rename(dir+"/e", dir+"/d"))
			}
			return nil
		}
		lost = changes.Lost
		return stopped
	})
	if err != stopped || !lost {
		t.Errorf("%v, lost: %v", err, lost)
	}
}

// After any changes, the reports turn the tree before into the tree afterwards.
func TestWatchOfARandomTree(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			walkRandomly(t, rand.New(rand.NewPCG(seed, 2)))
		})
	}
}

func walkRandomly(t *testing.T, random *rand.Rand) {
	f, dir := workspace(t, nil)
	w := watch(t, f, agent.Watch{Recursive: true})
	known := map[string]bool{}
	at := func() string {
		name := dir
		for range 1 + random.IntN(3) {
			name = filepath.Join(name, string(rune('a'+random.IntN(3))))
		}
		return name
	}
	for round := range 20 {
		for range 20 {
			switch at, other := at(), at(); random.IntN(7) {
			case 0, 1:
				_ = os.Mkdir(at, 0o755)
			case 2:
				_ = os.WriteFile(at, []byte("x"), 0o644)
			case 3:
				_ = os.Rename(at, other)
			case 4:
				_ = os.RemoveAll(at)
			case 5:
				_ = unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			case 6:
				_ = os.WriteFile(other, nil, 0o644)
				_ = os.WriteFile(at, nil, 0o644)
				_ = os.Rename(at, other)
				_ = os.RemoveAll(other)
			}
		}
		mark := fmt.Sprintf("mark%d", round)
		try(t, os.WriteFile(filepath.Join(dir, mark), nil, 0o644))
		for _, change := range w.until("+" + mark) {
			switch path := change[1:]; {
			case change == "lost":
				t.Fatal("so few changes were lost")
			case change[0] == '-':
				for at := range known {
					if at == path || isBelow(at, path) {
						delete(known, at)
					}
				}
			default:
				known[path] = true
			}
		}
		there := map[string]bool{}
		try(t, filepath.WalkDir(dir, func(at string, _ os.DirEntry, err error) error {
			if at != dir {
				there[at[len(dir)+1:]] = true
			}
			return err
		}))
		for at := range there {
			if !known[at] {
				t.Fatalf("%s wasn't reported", at)
			}
		}
		for at := range known {
			if !there[at] {
				t.Fatalf("%s is gone, and that wasn't reported", at)
			}
		}
	}
}
