package runtime

import "math"

// A LossCause is the reason why output is missing from an execution's output log.
type LossCause string

// The causes. Each rests on evidence; without evidence the cause is UNKNOWN.
const (
	LossStorageFull LossCause = "STORAGE_FULL" // the disk or the space for output was full when it was printed
	LossUnwritable  LossCause = "UNWRITABLE"   // the log was unwritable for another reason when it was printed
	LossRetention   LossCause = "RETENTION"    // it was stored, and retention removed it
	LossDeleted     LossCause = "DELETED"      // it was stored, and something else deleted the log
	LossDamaged     LossCause = "DAMAGED"      // it was stored, and the log was truncated or changed
	LossUnknown     LossCause = "UNKNOWN"      // no evidence survived
)

// LossCauses returns all causes.
func LossCauses() []LossCause {
	return []LossCause{LossStorageFull, LossUnwritable, LossRetention, LossDeleted, LossDamaged, LossUnknown}
}

// An OutputLoss is a range of output that could not be written, [From, To), and why. To is 0 while
// nothing was written after it, and in records of older servers; it then ends at the next OutputLoss.
type OutputLoss struct {
	From  int64     `json:"from"`
	To    int64     `json:"to,omitempty"`
	Cause LossCause `json:"cause"`
}

// LossAt returns why the output at an offset could not be written, or "" if no loss is recorded
// there. The answer holds up to the offset until.
func (x Execution) LossAt(offset int64) (cause LossCause, until int64) {
	until = math.MaxInt64
	for _, loss := range x.Losses {
		switch {
		case offset < loss.From:
			return cause, min(until, loss.From)
		case loss.To == 0:
			cause, until = loss.Cause, math.MaxInt64
		case offset < loss.To:
			cause, until = loss.Cause, loss.To
		default:
			cause, until = "", math.MaxInt64
		}
	}
	return cause, until
}

// LossesBefore returns the recorded losses before an offset. The last one is cut off at the offset.
func (x Execution) LossesBefore(offset int64) []OutputLoss {
	var losses []OutputLoss
	for _, loss := range x.Losses {
		if loss.From >= offset {
			break
		}
		losses = append(losses, loss)
	}
	if n := len(losses); n > 0 && (losses[n-1].To == 0 || losses[n-1].To > offset) {
		losses[n-1].To = offset
	}
	return losses
}
