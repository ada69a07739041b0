//go:build faults

package faults

import "syscall"

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
	s.hooks.mu.Lock()
	s.hooks.dying = func(n int) bool { return n%3 == 0 }
	s.hooks.mu.Unlock()
	return func(int) { s.answered(300) }
}
