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

var reasons = map[runtime.LossCause]string{
	runtime.LossStorageFull: "the server's disk, or the space that --keep-bytes leaves for output, was full when it was printed",
	runtime.LossUnwritable:  "the server could not write it when it was printed: the disk failed or was read-only, or no file descriptors were left",
	runtime.LossRetention:   "retention removed it (see --keep-executions and --keep-bytes)",
	runtime.LossDeleted:     "something other than the server deleted its file from the data directory",
	runtime.LossDamaged:     "its file in the data directory is damaged: it was changed, or a power cut truncated it",
	runtime.LossUnknown:     "an earlier server did not store it, and the reason is unknown",
}

// cause returns why the output at the reader's position is missing from the log, and up to which
// offset. behind says that the log has nothing after it.
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

// damage returns the damage to a log after its execution had ended; "" means none.
func (r *Reader) damage(x runtime.Execution) runtime.LossCause {
	had := int64(1) // older servers didn't store the size; it wasn't empty, since output is missing
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

// missing returns why a log's file is missing. Retention deletes the execution before the file.
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
