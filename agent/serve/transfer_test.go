package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/agent"
)

func TestTransfers(t *testing.T) {
	f := newFixture(t, nil)
	n := 0
	each := func(info agent.FileInfo) error { n++; return nil }
	if err := agent.ListFiles(t.Context(), f.dial(), agent.ListDir{Path: "d"}, each); err != nil || n != 1000 {
		t.Errorf("%d entries, %v", n, err)
	}
	var e *agent.Error
	if err := agent.ListFiles(t.Context(), f.dial(), agent.ListDir{Path: "d", Recursive: true}, each); !errors.As(err, &e) || e.Code != agent.ErrInternal {
		t.Errorf("list: %v", err)
	}
	for path, want := range map[string]agent.ErrorCode{"whole": "", "short": agent.ErrInvalid, "broken": agent.ErrInternal} {
		info, r, err := agent.OpenFile(t.Context(), f.dial(), path, 0)
		if err != nil || info.Size != 100_000 {
			t.Fatalf("%s: %+v, %v", path, info, err)
		}
		all, err := io.ReadAll(r)
		if want == "" && (err != nil || len(all) != 100_000) || want != "" && (!errors.As(err, &e) || e.Code != want) {
			t.Errorf("%s: %d bytes, %v", path, len(all), err)
		}
		_ = r.Close()
	}
	_, r, err := agent.OpenFile(t.Context(), f.dial(), "\xff", 99_998)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(r); err != nil || string(all) != "xy" {
		t.Errorf("from an offset on: %q, %v", all, err)
	}
	_ = r.Close()
	if _, _, err := agent.OpenFile(t.Context(), f.dial(), "whole", 100_001); !errors.As(err, &e) || e.Code != agent.ErrInvalid {
		t.Errorf("beyond the end: %v", err)
	}
	content := func(i int) io.Reader { return strings.NewReader(strings.Repeat(fmt.Sprint(i), 100_000)) }
	updated, err := agent.UpdateFiles(t.Context(), f.dial(), agent.Update{Write: []agent.Write{
		{Path: "a", Size: 70_000}, {Path: "d", Directory: true}, {Path: "full", Size: 90_000}, {Path: "ignored", Size: 5}, {Path: "z", Size: 1},
	}}, content)
	if err != nil || fmt.Sprint(updated.Written) != "[a70000 0 d z1 4]" && fmt.Sprint(updated.Written) != "[a700000 d z14]" || len(updated.Failed) != 1 {
		t.Errorf("%+v, %v", updated, err)
	}
	if _, err := agent.UpdateFiles(t.Context(), f.dial(), agent.Update{Delete: []string{"x"}}, nil); !errors.As(err, &e) || e.Code != agent.ErrDenied || e.Index != 1 {
		t.Errorf("update: %v", err)
	}
	if info, err := agent.MoveFile(t.Context(), f.dial(), agent.Move{From: "abc", To: "d"}); err != nil || string(info.Path) != "d" || info.Size != 3 {
		t.Errorf("move: %+v, %v", info, err)
	}
	if _, err := agent.MoveFile(t.Context(), f.dial(), agent.Move{From: "abc", To: "there"}); !errors.As(err, &e) || e.Code != agent.ErrDenied || e.Field != "to" {
		t.Errorf("move: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := agent.StatFile(ctx, f.dial(), "a", false); !errors.Is(err, context.Canceled) {
		t.Errorf("stat: got %v, want %v", err, context.Canceled)
	}
}

// A content fills less than a frame in the time after which a silent stream breaks. Its bytes are
// sent in time.
func TestSlowUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		began := time.Now()
		for _, size := range []int64{-1, 20} {
			updated, err := agent.UpdateFiles(t.Context(), f.dial(), agent.Update{Write: []agent.Write{{Path: "slow", Size: size}}},
				func(int) io.Reader { return &slow{left: 20} })
			if err != nil || fmt.Sprint(updated.Written) != "[slow20 x]" && fmt.Sprint(updated.Written) != "[slow20x]" {
				t.Errorf("%+v, %v", updated, err)
			}
		}
		if took := time.Since(began); took != 2*20*30*time.Second {
			t.Errorf("it took %s, so this test shows nothing", took)
		}
	})
}

// slow returns a byte every 30 s.
type slow struct{ left int }

func (s *slow) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(30 * time.Second)
	s.left--
	p[0] = 'x'
	return 1, nil
}

// Slow clients occupy all transfers; a further one gets an error.
func TestTransfersFailWhenAllSlotsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		var open []io.Closer
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			_, content, err := agent.OpenFile(ctx, f.dial(), "whole", 0)
			if err != nil {
				var e *agent.Error
				if !errors.As(err, &e) || e.Code != agent.ErrTooMany || len(open) != 16 {
					t.Errorf("%v, after %d", err, len(open))
				}
				cancel()
				break
			}
			open = append(open, content)
			defer cancel()
		}
		for _, content := range open {
			_ = content.Close()
		}
		if _, err := agent.StatFile(t.Context(), f.dial(), "whole", false); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
