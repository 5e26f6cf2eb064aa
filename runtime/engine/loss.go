package engine

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/output"
)

// maxLosses bounds what is stored about an execution's losses.
const maxLosses = 100

// reasons say to people what the causes mean.
var reasons = map[runtime.LossCause]string{
	runtime.LossStorageFull: "the server's disk, or what --keep-bytes leaves for output, was full when it was printed",
	runtime.LossUnwritable:  "the server could not write it when it was printed: its disk failed or was read-only, or it had no file descriptors left",
	runtime.LossRetention:   "it was collected",
	runtime.LossDeleted:     "its file was deleted from the server's data directory, not by the server",
	runtime.LossDamaged:     "its file in the server's data directory is damaged: it was changed, or a power cut took its end",
	runtime.LossUnknown:     "an earlier server did not store it, and no evidence of why is left",
}

// unwritten returns the cause of an error of a log's Flush.
func unwritten(err error) runtime.LossCause {
	for _, full := range []error{output.ErrQuota, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, full) {
			return runtime.LossStorageFull
		}
	}
	return runtime.LossUnwritable
}

// lose records, for readers and for the next server, why output from an offset on
// is lost. The end of the execution is stored with it, if this can't be.
func (s *session) lose(ctx context.Context, from int64, cause runtime.LossCause) {
	losses := s.execution().LossesBefore(from)
	switch n := len(losses); {
	case n > 0 && losses[n-1].To == from && losses[n-1].Cause == cause:
		losses[n-1].To = 0
	case n < maxLosses: // what comes past them is UNKNOWN
		losses = append(losses, runtime.OutputLoss{From: from, Cause: cause})
	}
	s.putLosses(ctx, losses)
}

// wrote records that output from an offset on isn't lost: why earlier output is
// explains nothing after it.
func (s *session) wrote(ctx context.Context, from int64) {
	if x := s.execution(); len(x.Losses) > 0 {
		s.putLosses(ctx, x.LossesBefore(from))
	}
}

func (s *session) putLosses(ctx context.Context, losses []runtime.OutputLoss) {
	if slices.Equal(losses, s.execution().Losses) {
		return
	}
	x := s.change(func(x runtime.Execution) runtime.Execution {
		x.Losses = losses
		return x
	})
	if err := s.engine.store.PutExecution(context.WithoutCancel(ctx), x); err != nil {
		s.engine.logger.Warn("why output is lost could not be stored yet", zap.String("execution", string(x.ID)), zap.Error(err))
	}
}

// cause returns why the output at the reader's place isn't in the log, and up to
// where; behind says that the log has nothing after it.
func (r *Events) cause(behind bool) (cause runtime.LossCause, until int64) {
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
func (r *Events) damage(x runtime.Execution) runtime.LossCause {
	had := int64(1) // what an older server wrote isn't known: something, since it told of output
	if x.LogBytes != nil {
		had = *x.LogBytes
	}
	info, err := os.Stat(r.engine.logPath(r.id))
	switch {
	case had == 0:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return r.missing()
	case err != nil:
		return runtime.LossUnknown
	case x.LogBytes != nil && info.Size() < had, r.reader.Torn() && (x.LogBytes == nil || r.reader.Position() < had):
		return runtime.LossDamaged
	}
	return ""
}

// missing returns why a log's file isn't there. Collecting deletes the execution
// first.
func (r *Events) missing() runtime.LossCause {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	switch there, err := r.engine.store.HasExecution(ctx, r.id); {
	case err != nil:
		return runtime.LossUnknown
	case there:
		return runtime.LossDeleted
	default:
		return runtime.LossRetention
	}
}
