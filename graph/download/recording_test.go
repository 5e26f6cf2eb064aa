package download

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/executions"
)

// A recordList is a list of records, each after a number of missing bytes.
type recordList []struct {
	lost   int64
	record executions.Record
}

func (r *recordList) Next() (executions.Record, int64, error) {
	if len(*r) == 0 {
		return executions.Record{}, 0, io.EOF
	}
	next := (*r)[0]
	*r = (*r)[1:]
	return next.record, next.lost, nil
}

func (r *recordList) Lost() int64 { return 100 }

func TestRecordingHasSizesAndTimestamps(t *testing.T) {
	size := func(columns int) runtime.TerminalSize { return runtime.TerminalSize{Columns: columns, Rows: 24} }
	records := func() *recordList {
		return &recordList{
			{0, executions.Record{Since: time.Microsecond, Size: size(80)}},
			{0, executions.Record{Stream: runtime.Stdout, Since: time.Second, Data: []byte("one\n\xf0\x9f")}},
			{0, executions.Record{Since: 2 * time.Second, Size: size(100)}},
			{0, executions.Record{Since: 2 * time.Second, Size: size(100)}},
			{7, executions.Record{Stream: runtime.Stdout, Since: 3 * time.Second, Data: []byte("\x98\x80two\n")}},
			{1, executions.Record{Since: 4 * time.Second, Size: size(80)}},
		}
	}
	first := size(80)
	for name, test := range map[string]struct {
		x    runtime.Execution
		want string
	}{
		"terminal": {runtime.Execution{Terminal: &first}, `{"version":2,"width":80,"height":24}
[1,"o","one\n"]
[2,"r","100x24"]
[3,"o","��"]
[3,"m","bytes missing here: 7"]
[3,"o","��two\n"]
[4,"m","bytes missing here: 1"]
[4,"r","80x24"]
[4,"m","bytes missing here: 92"]
`},
		"pipes": {runtime.Execution{Terminal: nil}, `{"version":2,"width":120,"height":32}
[0.000001,"r","80x24"]
[1,"o","one\r\n"]`},
	} {
		var got strings.Builder
		if err := writeCast(&got, test.x, records()); err != nil || !strings.HasPrefix(got.String(), test.want) || name == "terminal" && got.String() != test.want {
			t.Errorf("%s: %v\n%s", name, err, got.String())
		}
	}
}
