package redis

import (
	"errors"
	"testing"
)

// answer is an error that a server answered.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// Redis 6.2 puts the code of a command's error behind the place in the script.
func TestFailure(t *testing.T) {
	const before7 = "ERR Error running script (call to f_00aa): @user_script:3: "
	for name, test := range map[string]struct {
		text         string
		want         error
		servesNobody bool
	}{
		"full, 7.0":          {"OOM command not allowed when used memory > 'maxmemory'. script: f00, on @user_script:3.", ErrFull, false},
		"full, 6.2":          {before7 + "@user_script: 3: -OOM command not allowed when used memory > 'maxmemory'.", ErrFull, false},
		"full, once, 6.2":    {before7 + "OOM command not allowed when used memory > 'maxmemory'.", ErrFull, false},
		"another kind, 7.0":  {"WRONGTYPE Operation against a key holding the wrong kind of value script: f00, on @user_script:3.", ErrCorrupt, false},
		"another kind, 6.2":  {before7 + "WRONGTYPE Operation against a key holding the wrong kind of value", ErrCorrupt, false},
		"a slot moves":       {"TRYAGAIN Multiple keys request during rehashing of slot", ErrSlotMoves, false},
		"read-only, 6.2":     {before7 + "@user_script: 3: -READONLY You can't write against a read only replica.", ErrUnavailable, true},
		"a script's mistake": {before7 + "attempt to index a nil value (OOM)", ErrUnavailable, true},
		"no script's error":  {"LOADING Redis is loading the dataset in memory", ErrUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := failure(answer(test.text))
			if !errors.Is(err, test.want) || ServesNobody(err) != test.servesNobody {
				t.Errorf("%v; serves nobody: %t", err, ServesNobody(err))
			}
		})
	}
}
