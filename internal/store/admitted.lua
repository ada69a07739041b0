-- Follows the first word of an answer: the time, and by when all requests are paid for.
  .. clock[1] .. ' ' .. clock[2] .. ' ' .. debt
