"""Alarms that are up for one engine.  Pure; an alarm keeps the time it was raised at."""

from __future__ import annotations

from dataclasses import dataclass

from store.records import Alarm


@dataclass(frozen=True, slots=True)
class Alarms:
    """What a person must know now, in the order it came up."""

    raised: tuple[Alarm, ...] = ()

    def up(self, code: str, text: str, at_utc_ms: int) -> Alarms:
        """With ``code`` raised; its text is renewed, its time is kept."""
        for index, alarm in enumerate(self.raised):
            if alarm.code == code:
                if alarm.text == text:
                    return self
                again = Alarm(code=code, text=text, since_utc_ms=alarm.since_utc_ms)
                return Alarms((*self.raised[:index], again, *self.raised[index + 1 :]))
        return Alarms((*self.raised, Alarm(code=code, text=text, since_utc_ms=at_utc_ms)))

    def down(self, *codes: str) -> Alarms:
        """Without ``codes``; the same object if none of them was raised."""
        if not self.raised or all(alarm.code not in codes for alarm in self.raised):
            return self
        return Alarms(tuple(alarm for alarm in self.raised if alarm.code not in codes))
