package health

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/rockpool/rockpool/runtime"
)

func TestTheLatestProblemOfEachSubjectIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.ErrorLevel)
		began := time.Now()
		l := NewProblems(zap.New(core), runtime.Problem{Subject: "start", Message: "slow", Since: began})
		expect := func(want string, logged int) {
			t.Helper()
			var all []string
			for _, p := range l.All() {
				all = append(all, fmt.Sprintf("%s %s %s", p.Subject, p.Message, p.Since.Sub(began)))
			}
			if got := strings.Join(all, ", "); got != want || logs.Len() != logged {
				t.Errorf("%q, logged %d; want %q and %d", got, logs.Len(), want, logged)
			}
		}
		time.Sleep(time.Second)
		l.Report("disk", "full")
		time.Sleep(time.Second)
		l.Report("disk", "full")
		expect("start slow 0s, disk full 1s", 1)
		l.Report("disk", "broken")
		l.Report("disk a", "full")
		expect("start slow 0s, disk broken 1s, disk a full 2s", 3)
		l.All()[0].Message = "changed by its holder"
		l.Resolve("start")
		l.Resolve("none")
		expect("disk broken 1s, disk a full 2s", 3)
		l.ResolveFunc(func(subject string) bool { return strings.HasPrefix(subject, "disk ") })
		expect("disk broken 1s", 3)
		l.Resolve("disk")
		l.Report("disk", "broken")
		expect("disk broken 2s", 4)
	})
}
