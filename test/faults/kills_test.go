//go:build faults

package faults

import (
	"syscall"
	"testing"
)

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
		{"P1 P4 P5 P12", "kill -9 of an API replica", promised, amid(3, killReplica)},
		{"P1 P4 P5 P12", "kill -9 of Redis, `appendfsync always`", promised, amid(3, killRedis)},
		{"P1 P4 P5 P12", "kill -9 of Redis and of an API replica at once", promised, amid(2, killBoth)},
		{"P1 P4 P5 P12", "every connection to Redis reset", promised, amid(8, resetConnections)},
		{"P1 P4 P5 P12", "answers of Redis come too late", promised, amid(4, delayAnswers)},
		{"P1 P4 P5 P12", "Redis frozen (SIGSTOP)", promised, amid(3, freezeRedis)},
		{"P1 P4 P5 P12", "an API replica frozen (SIGSTOP)", promised, amid(3, freezeReplica)},
		{"P4", "kill -9 of a dispatcher", promised, amid(2, killDispatcher)},
		{"P4", "the receiver dies of every third event", promised, amid(1, killReceiver)},
	}
}

func killReplica(s *storm) func(int) {
	return func(n int) {
		victim := s.replicas[n%len(s.replicas)]
		victim.kill()
		s.answered(20) // by the other one
		victim.restart(s.t)
	}
}

func killRedis(s *storm) func(int) {
	return func(int) {
		s.redis.Kill()
		s.unanswered(10)
		s.redis.Start()
	}
}

func killBoth(s *storm) func(int) {
	return func(n int) {
		victim := s.replicas[n%len(s.replicas)]
		s.redis.Kill()
		victim.kill()
		s.redis.Start()
		victim.restart(s.t)
	}
}

func resetConnections(s *storm) func(int) {
	return func(int) {
		s.toRedis.cut()
		s.toRedis.mend(s.t)
	}
}

// delayAnswers lets the scripts run, and nobody hear of it in time.
func delayAnswers(s *storm) func(int) {
	return func(int) {
		s.toRedis.poison(s.t, "latency", "downstream", `{"latency":900}`)
		s.unanswered(20)
		s.toRedis.heal()
	}
}

func freezeRedis(s *storm) func(int) {
	return func(int) {
		s.redis.Pause()
		s.unanswered(20)
		s.redis.Resume()
	}
}

func freezeReplica(s *storm) func(int) {
	return func(n int) {
		victim := s.replicas[n%len(s.replicas)]
		victim.signal(s.t, syscall.SIGSTOP)
		s.unanswered(2) // its callers give up
		victim.signal(s.t, syscall.SIGCONT)
	}
}

// killDispatcher kills them in turn; what one of them held comes due again with the end of its lease.
func killDispatcher(s *storm) func(int) {
	return func(n int) {
		victim := s.dispatchers[n%len(s.dispatchers)]
		victim.kill()
		s.answered(20)
		victim.restart(s.t)
	}
}

func killReceiver(s *storm) func(int) {
	s.hooks.die(func(n int) bool { return n%3 == 0 })
	return func(int) { s.answered(300) }
}
