package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// trips returns the commands that clients sent to Redis while do ran, word by word; those that scripts gave are not among them.
// It slows Redis down, so nothing is measured meanwhile.
func (s *stand) trips(ctx context.Context, do func() error) ([][]string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.redis.Addr())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(process.Patience)); err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(conn)
	if _, err := lines.ReadString('\n'); err != nil { // +OK
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	const end = "that was all"
	if err := s.client.Do(ctx, "ECHO", end).Err(); err != nil {
		return nil, err
	}
	var sent [][]string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("listen to Redis: %w", err)
		}
		words, byScript, err := monitored(line)
		switch {
		case err != nil:
			return nil, err
		case byScript:
		case len(words) > 1 && words[1] == end:
			return sent, nil
		default:
			sent = append(sent, words)
		}
	}
}

// monitored reads a line such as
//
//	+1700000000.000000 [0 127.0.0.1:41234] "get" "key"
func monitored(line string) (words []string, byScript bool, err error) {
	_, origin, _ := strings.Cut(line, "[")
	origin, rest, found := strings.Cut(origin, "] ")
	if !found {
		return nil, false, fmt.Errorf("not a line of MONITOR: %q", line)
	}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimPrefix(rest, " ") {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, false, fmt.Errorf("not a line of MONITOR: %q", line)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, false, fmt.Errorf("not a line of MONITOR: %q", line)
		}
		words = append(words, word)
		rest = rest[len(quoted):]
	}
	return words, strings.HasSuffix(origin, "lua"), nil
}

// scriptCost is what Redis says of all scripts since its statistics were reset.
type scriptCost struct {
	calls  int64
	micros float64
}

// scripts returns what the scripts have cost Redis until now.
func (s *stand) scripts(ctx context.Context) (scriptCost, error) {
	text, err := s.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return scriptCost{}, err
	}
	var cost scriptCost
	for line := range strings.Lines(text) {
		name, fields, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		for field := range strings.SplitSeq(fields, ",") {
			key, value, _ := strings.Cut(field, "=")
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return scriptCost{}, fmt.Errorf("not a statistic: %q", line)
			}
			switch key {
			case "calls":
				cost.calls += int64(number)
			case "usec":
				cost.micros += number
			}
		}
	}
	return cost, nil
}

func newRedisClient(address string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address, Protocol: 2, ReadTimeout: process.Patience, WriteTimeout: process.Patience})
}

// identifyRedis asks Redis for its process and port.
func (s *stand) identifyRedis(ctx context.Context) error {
	text, err := s.client.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "process_id":
			s.redisPID, err = strconv.Atoi(value)
		case "tcp_port":
			s.redisPort, err = strconv.Atoi(value)
		}
		if err != nil {
			return fmt.Errorf("not a number: %q", line)
		}
	}
	return nil
}
