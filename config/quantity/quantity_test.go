package quantity

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "90s": 90 * time.Second, "1m": time.Minute, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "2d": 48 * time.Hour,
		"1d12h": 36 * time.Hour, "1d1.5h": 25*time.Hour + 30*time.Minute, "4500ms": 4500 * time.Millisecond, "010": 10 * time.Second, "1.5d": 36 * time.Hour, "-5": -5 * time.Second, "-1m": -time.Minute, "-1d1h": -25 * time.Hour,
	} {
		if got, err := Duration(text, time.Second); err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	if got, err := Duration("250", time.Millisecond); err != nil || got != 250*time.Millisecond {
		t.Error(got, err)
	}
	for _, text := range []string{"9223372036854775807", "99999999999999999999", "106752d", "99999999999999999999d", "106751d24h", "9999999999999h", "1h9999999999999999999999h"} {
		if got, err := Duration(text, time.Second); !errors.Is(err, ErrRange) || got != math.MaxInt64 {
			t.Errorf("%s: %v %v", text, got, err)
		}
		if got, err := Duration("-"+text, time.Second); !errors.Is(err, ErrRange) || got != -math.MaxInt64 {
			t.Errorf("-%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "d", "s", "1x", "1.5", "0x10", "1_000", "1.", ".5", "1.5.5", "1e3", "1/2", "1h2d", "1d2d", "--1s", "-", "1 m", "1s ", "+1s", "1d-1h", "1d1", "1D", "1h 30m", "१s"} {
		if got, err := Duration(text, time.Second); err == nil || errors.Is(err, ErrRange) {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1 << 20, "010": 10 << 20, "010M": 10 << 20, "1.5G": 3 << 29, "0.3K": 307, "-1.5k": -1536, "-1": -1 << 20, "512M": 512 << 20, "512MB": 512 << 20, "512MiB": 512 << 20, "512mb": 512 << 20, "1g": 1 << 30,
		"1024B": 1024, "2K": 2048, "3TiB": 3 << 40, "4P": 4 << 50, "-2k": -2048,
	} {
		if got, err := Size(text, 1<<20); err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"8796093022208", "99999999999999999999", "8192P", "99999999999999999999B"} {
		if got, err := Size(text, 1<<20); !errors.Is(err, ErrRange) || got != math.MaxInt64 {
			t.Errorf("%s: %v %v", text, got, err)
		}
		if got, err := Size("-"+text, 1<<20); !errors.Is(err, ErrRange) || got != -math.MaxInt64 {
			t.Errorf("-%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "M", "1.5", "1.G", ".5G", "1.5.5G", "1e3", "0x10", "1_000", "1 M", "1Mi", "1i", "1Bi", "1BB", "1KM", "1E", "--1M", "-", "1M ", "+1M", "१M", "1KB1"} {
		if got, err := Size(text, 1); err == nil || errors.Is(err, ErrRange) {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

type grammar struct {
	Wait   *time.Duration `from:"0" to:"1h"`
	Plain  time.Duration  `default:"4500ms"`
	Limit  *int           `type:"time" from:"0" to:"86400"`
	Pause  int            `type:"time" unit:"ms" default:"10"`
	Memory *int           `type:"size" unit:"MiB" from:"16" to:"1048576"`
	Bytes  int64          `type:"size" default:"7"`
	Other  string
}

func TestFlagsAreQuantities(t *testing.T) {
	var g grammar
	parser, err := kong.New(&g, Flags())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(strings.Fields("--wait 1m --limit 1h --pause 2s --memory 1G --bytes 3K")); err != nil {
		t.Fatal(err)
	}
	if *g.Wait != time.Minute || g.Plain != 4500*time.Millisecond || *g.Limit != 3600 || g.Pause != 2000 || *g.Memory != 1024 || g.Bytes != 3072 {
		t.Errorf("%+v", g)
	}
	if _, err := parser.Parse(strings.Fields("--wait 60 --plain 5 --limit 7 --memory 512 --bytes 99999P")); err != nil {
		t.Fatal(err)
	}
	if *g.Wait != time.Minute || g.Plain != 5*time.Second || *g.Limit != 7 || g.Pause != 10 || *g.Memory != 512 || g.Bytes != math.MaxInt64 {
		t.Errorf("what is too large isn't the largest, or a bare number isn't of its unit: %+v", g)
	}
	for arguments, says := range map[string]string{
		"--wait=-1s":             `--wait: "-1s" must be 0 to 1h`,
		"--wait=2d":              "0 to 1h",
		"--wait=99999999999d":    "0 to 1h",
		"--wait=soon":            "90s",
		"--limit=-1":             "0 to 86400",
		"--limit=1500ms":         "whole seconds",
		"--memory=8":             "16 to 1048576 MiB",
		"--memory=999999999999G": "16 to 1048576 MiB",
		"--memory=16385K":        "whole MiB",
		"--memory=large":         "512M",
		"--pause=1us":            "whole milliseconds",
	} {
		if _, err := parser.Parse([]string{arguments}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", arguments, err, says)
		}
	}
	for _, flag := range parser.Model.Flags {
		help, wrong := Help(flag.Value), Wrong
		if is := Is(flag.Value); is != (flag.Name != "other" && flag.Name != "help") || is != (strings.Contains(help, "or 2d") || strings.Contains(help, "or 1GiB")) || is != (len(Examples(flag.Value)) > 0) {
			t.Errorf("%s: %v %q %q", flag.Name, is, help, Examples(flag.Value))
		} else if is && (wrong(flag.Value, "1x") == "" || wrong(flag.Value, "1") != "" || wrong(flag.Value, "99999999999999999999") != "") {
			t.Errorf("%s: the forms of a wrong one aren't told", flag.Name)
		}
		for _, example := range Examples(flag.Value) {
			if says := wrong(flag.Value, example); says != "" {
				t.Errorf("%s %s: got %s, want \"\"", flag.Name, example, says)
			}
		}
	}
}

// A duration reads back as it was formatted, and a refused one is really too large.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"1", "-1", "90s", "1h30m", "2d", "1d12h", "106751d23h", "99999999999999999999h", "1.5h", "1d-1h", "0x1", "1.5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Duration(text, time.Second)
		switch {
		case errors.Is(err, ErrRange):
			if d != math.MaxInt64 && d != -math.MaxInt64 {
				t.Errorf("%q: %v", text, d)
			}
		case err != nil:
			if d != 0 {
				t.Errorf("%q: got %v, want 0", text, d)
			}
		default:
			if again, err := Duration(d.String(), time.Second); err != nil || again != d {
				t.Errorf("%q: %v, then %v %v", text, d, again, err)
			}
			if strings.HasPrefix(text, "-") && d > 0 || !strings.HasPrefix(text, "-") && d < 0 {
				t.Errorf("%q: %v", text, d)
			}
		}
	})
}

func FuzzSize(f *testing.F) {
	for _, text := range []string{"1", "-1", "512M", "512MB", "512MiB", "1g", "8191P", "1.5G", "8192P", "99999999999999999999K", "1Bi"} {
		f.Add(text, int64(1<<20))
	}
	f.Fuzz(func(t *testing.T, text string, unit int64) {
		if unit < 1 || unit > 1<<40 {
			return
		}
		n, err := Size(text, unit)
		switch {
		case errors.Is(err, ErrRange):
			if n != math.MaxInt64 && n != -math.MaxInt64 {
				t.Errorf("%q: %d", text, n)
			}
		case err != nil:
			if n != 0 {
				t.Errorf("%q: got %d, want 0", text, n)
			}
		default:
			if again, err := Size(strconv.FormatInt(n, 10)+"B", unit); err != nil || again != n {
				t.Errorf("%q: %d, then %d %v", text, n, again, err)
			}
			if exact, ok := new(big.Int).SetString(text, 10); ok && exact.Mul(exact, big.NewInt(unit)).Cmp(big.NewInt(n)) != 0 {
				t.Errorf("%q of %d: %d, not %v", text, unit, n, exact)
			}
		}
	})
}
