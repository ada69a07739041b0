//go:build faults

package faults

import "testing"

// stormFaults let something die, or let it hear nothing, amid charges.
func stormFaults() []fault {
	const promised = "nothing acknowledged is lost or doubled, each transition is told"
	amid := func(times int, try func(*storm) func(n int)) func(*testing.T) (int, string) {
		return func(t *testing.T) (int, string) {
			t.Helper()
			s := newStorm(t, 2, 2)
			times := times * *intensity
			s.rage(times, try(s))
			return times, s.audit() + "; " + s.connections()
		}
	}
	return []fault{
		{"P1 P4 P5", "kill -9 of an API replica", promised, amid(3, killReplica)},
		{"P1 P4 P5", "kill -9 of Redis, `appendfsync always`", promised, amid(3, killRedis)},
		{"P1 P4 P5", "kill -9 of Redis and of an API replica at once", promised, amid(2, killBoth)},
		{"P1 P4 P5", "every connection to Redis reset", promised, amid(8, resetConnections)},
		{"P1 P4 P5", "answers of Redis come too late", promised, amid(4, delayAnswers)},
		{"P1 P4 P5", "Redis frozen (SIGSTOP)", promised, amid(3, freezeRedis)},
		{"P1 P4 P5", "an API replica frozen (SIGSTOP)", promised, amid(3, freezeReplica)},
		{"P4", "kill -9 of a dispatcher", promised, amid(2, killDispatcher)},
		{"P4", "the receiver dies of every third event", promised, amid(1, killReceiver)},
	}
}
