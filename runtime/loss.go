package runtime

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

// An OutputLoss is the cause for which output from an offset on could not be
// written, where it could not: until the next OutputLoss.
type OutputLoss struct {
	From  int64     `json:"from"`
	Cause LossCause `json:"cause"`
}

// LossAt returns the cause for which the output at an offset could not be written;
// "" if none was recorded.
func (x Execution) LossAt(offset int64) LossCause {
	var cause LossCause
	for _, loss := range x.Losses {
		if loss.From > offset {
			break
		}
		cause = loss.Cause
	}
	return cause
}
