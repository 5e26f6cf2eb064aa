package events

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// reasons say to people what the causes mean.
var reasons = map[runtime.LossCause]string{
	runtime.LossStorageFull: "the server's disk, or what --keep-bytes leaves for output, was full when it was printed",
	runtime.LossUnwritable:  "the server could not write it when it was printed: its disk failed or was read-only, or it had no file descriptors left",
	runtime.LossRetention:   "it was collected",
	runtime.LossDeleted:     "its file was deleted from the server's data directory, not by the server",
	runtime.LossDamaged:     "its file in the server's data directory is damaged: it was changed, or a power cut took its end",
	runtime.LossUnknown:     "an earlier server did not store it, and no evidence of why is left",
}

// cause returns why the output at the reader's place isn't in the log, and up to
// where; behind says that the log has nothing after it.
func (r *Reader) cause(behind bool) (cause runtime.LossCause, until int64) {
	x := r.execution()
	if behind && x.State == runtime.ExecutionFinished {
		if cause := r.damage(x); cause != "" {
			return cause, math.MaxInt64
		}
	}
	cause, until = x.LossAt(r.at.offset)
	return cmp.Or(cause, runtime.LossUnknown), until
}

// damage returns what became of a log after its execution had ended; "": nothing.
func (r *Reader) damage(x runtime.Execution) runtime.LossCause {
	had := int64(1) // what an older server wrote isn't known: something, since it told of output
	if x.LogBytes != nil {
		had = *x.LogBytes
	}
	size, err := r.source.Log.Size()
	switch {
	case had == 0:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return r.missing()
	case err != nil:
		return runtime.LossUnknown
	case x.LogBytes != nil && size < had, r.log.Torn() && (x.LogBytes == nil || r.log.Position() < had):
		return runtime.LossDamaged
	}
	return ""
}

// missing returns why a log's file isn't there. Collecting deletes the execution
// first.
func (r *Reader) missing() runtime.LossCause {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	switch there, err := r.source.Known(ctx, r.at.id); {
	case err != nil:
		return runtime.LossUnknown
	case there:
		return runtime.LossDeleted
	default:
		return runtime.LossRetention
	}
}
