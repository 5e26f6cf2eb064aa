package runtime

import "math"

// A LossCause is why output isn't in the log of its execution.
type LossCause string

// The causes. Each rests on evidence; without any it is UNKNOWN.
const (
	LossStorageFull LossCause = "STORAGE_FULL" // when it was printed, the disk or the room for output was full
	LossUnwritable  LossCause = "UNWRITABLE"   // when it was printed, the log could not be written for another reason
	LossRetention   LossCause = "RETENTION"    // it was kept, and then collected
	LossDeleted     LossCause = "DELETED"      // it was kept, and then somebody else deleted the log
	LossDamaged     LossCause = "DAMAGED"      // it was kept, and then the log was cut off or changed
	LossUnknown     LossCause = "UNKNOWN"      // no evidence survived
)

// LossCauses are all.
func LossCauses() []LossCause {
	return []LossCause{LossStorageFull, LossUnwritable, LossRetention, LossDeleted, LossDamaged, LossUnknown}
}

// An OutputLoss is the cause for which output could not be written: what is missing
// from From up to To. To is 0 while nothing was written after it, and in what older
// servers stored; it then holds until the next OutputLoss.
type OutputLoss struct {
	From  int64     `json:"from"`
	To    int64     `json:"to,omitempty"`
	Cause LossCause `json:"cause"`
}

// LossAt returns the cause for which the output at an offset could not be written,
// "" if none was recorded, and the offset up to which the answer is the same.
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

// LossesBefore returns what is recorded of losses before an offset: nothing at or
// after it is known to be lost.
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
