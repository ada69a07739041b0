package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNotCopied says that a command was run, but that fewer replicas than wanted have confirmed what it wrote.
var ErrNotCopied = errors.New("too few replicas have confirmed the write")

// Copies are replicas that must have what a command wrote before it counts as answered.
type Copies struct {
	// Replicas is how many.
	Replicas int
	// Within is how long to wait for them, in whole milliseconds.
	Within time.Duration
}

// ProcessCopied sends a command whose first key is given, and waits until as many replicas of its server have all that the
// server had written by then: also what an earlier command did, if this one changes nothing. It is one trip, on a
// connection that is taken for as long as the wait. So it should be a link of its own, whose Timeout allows for that;
// others would wait behind it. Like Process it never sends again what may have been run. The error is ErrNotCopied
// when the command was run and too few have confirmed it.
func (l *Link) ProcessCopied(ctx context.Context, command *redis.Cmd, key string, copies Copies) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	cluster, ok := l.Client.(*redis.ClusterClient)
	if !ok {
		return sendCopied(ctx, l.Client, false, command, copies)
	}
	server, err := cluster.MasterForKey(ctx, key)
	asking := false
	for range mostRedirects {
		if err != nil {
			break
		}
		err = sendCopied(ctx, server, asking, command, copies)
		to, redirected := redirection(err, &asking)
		if !redirected {
			break
		}
		server, err = masterAt(ctx, cluster, to)
	}
	if err != nil && !errors.Is(err, ErrNotCopied) {
		cluster.ReloadState(ctx) // for the next one: its master may be another by now
	}
	return err
}

// sendCopied needs one connection for both, as a server knows by the connection what to wait for.
func sendCopied(ctx context.Context, server redis.UniversalClient, asking bool, command *redis.Cmd, copies Copies) error {
	together := server.Pipeline()
	if asking {
		_ = together.Process(ctx, redis.NewCmd(ctx, "asking")) // only collects, as for the others
	}
	_ = together.Process(ctx, sentOnce{command})
	wait := redis.NewCmd(ctx, "wait", copies.Replicas, copies.Within.Milliseconds())
	_ = together.Process(ctx, wait)
	_, _ = together.Exec(ctx) // each command has its own error
	if err := command.Err(); err != nil {
		return err
	}
	confirmed, err := wait.Int()
	if err != nil {
		return err
	}
	if confirmed < copies.Replicas {
		return fmt.Errorf("%w: %d of %d", ErrNotCopied, confirmed, copies.Replicas)
	}
	return nil
}

// redirection is where a server of a Redis Cluster says a command must go; it has run nothing. It may have to be asked for what it
// does not own yet.
func redirection(err error, asking *bool) (to string, redirected bool) {
	*asking = redis.HasErrorPrefix(err, "ASK")
	if !*asking && !redis.HasErrorPrefix(err, "MOVED") {
		return "", false
	}
	words := strings.Fields(err.Error())
	return words[len(words)-1], true
}

// masterAt looks for a server among those that are masters now.
func masterAt(ctx context.Context, cluster *redis.ClusterClient, address string) (*redis.Client, error) {
	found := make(chan *redis.Client, 1)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, server *redis.Client) error {
		if server.Options().Addr == address {
			found <- server
		}
		return nil
	})
	select {
	case server := <-found:
		return server, nil
	default:
		return nil, fmt.Errorf("redirected to %s, which is no known master: %w", address, err)
	}
}
