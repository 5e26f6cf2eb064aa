package wait

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failingTest is a test that records the message that ended it.
type failingTest struct {
	testing.TB
	said string
}

func (f *failingTest) Helper() {}

func (f *failingTest) Fatalf(format string, _ ...any) {
	f.said = format
	panic(f)
}

// ended runs do and reports whether it ended its test.
func ended(do func(t testing.TB)) (yes bool) {
	defer func() { yes = recover() != nil }()
	do(&failingTest{})
	return false
}

func TestForPollsUntilTheConditionHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, checks := time.Now(), 0
		For(t, "the tenth check", func() bool { checks++; return checks == 10 })
		if took := time.Since(began); checks != 10 || took == 0 || took > 9*last {
			t.Errorf("%d checks in %s", checks, took)
		}
	})
}

func TestForEndsATestThatWouldHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !ended(func(t testing.TB) { For(t, "what never is", func() bool { return false }) }) {
			t.Error("the test continues")
		}
		if took := time.Since(began); took < Limit || took > Limit+2*last {
			t.Errorf("it ended after %s", took)
		}
	})
}

func TestReceiveReturnsTheValueOrTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := make(chan int, 1)
		values <- 7
		if got := Receive(t, values, "a value"); got != 7 {
			t.Errorf("got %d", got)
		}
		if !ended(func(t testing.TB) { Receive(t, values, "what never comes") }) {
			t.Error("the test continues")
		}
		close(values)
		if got := Receive(t, values, "the end"); got != 0 {
			t.Errorf("got %d", got)
		}
	})
}

func TestLoadNamesTheLoad(t *testing.T) {
	if got := Load(); !strings.HasPrefix(got, "load ") || len(strings.Fields(got)) < 4 {
		t.Errorf("got %q", got)
	}
}
