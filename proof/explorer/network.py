"""The way between clients and store: a request is executed and answered, or something happens to it."""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.core.requests import Request
from proof.explorer.bounds import LATEST, REQUEST_TIMEOUT
from proof.explorer.clients import Playing
from proof.explorer.world import Actor, Flight, Part, World


class Sending(Playing):
    """See the module."""

    def send(self, world: World, number: int, part: Part, fate: str) -> None:
        """Send what a part of a client wants to ask, and let *fate* decide what becomes of it."""
        actor = world.own(number)
        request = self._wanted(actor, part)
        gives_up_at = world.now + REQUEST_TIMEOUT
        if part == "plan":
            actor.unsent, actor.gives_up_at = False, gives_up_at
        else:
            actor.renew_gives_up_at = gives_up_at
        flight = Flight(number, part, request, world.now + LATEST)
        if fate:
            world.faults -= 1
            world.calm = False
            self.note("{}: {}", fate, request)
        if fate == "late request":
            world.flights = (*world.flights, flight)
        elif fate == "unavailable":
            self.receive(world, number, part, request, errors.StoreUnavailable)
        elif fate != "lost request":
            if fate == "copy":
                world.flights = (*world.flights, flight._replace(awaited=False))
            answer = self.execute(world, request)
            if fate == "late answer":
                world.flights = (*world.flights, flight._replace(answer=answer))
            elif fate != "lost answer":
                self.receive(world, number, part, request, answer)

    def arrive(self, world: World, flight: Flight) -> None:
        """Let a request or an answer that was under way arrive."""
        world.flights = _without(world.flights, flight)
        answer = flight.answer
        if answer is None:
            self.note("now it arrives: {}", flight.request)
            answer = self.execute(world, flight.request)
            if not flight.awaited:
                return
            if not world.actors[flight.client].runs:
                world.flights = (*world.flights, flight._replace(answer=answer))
                return
        else:
            self.note("now its answer arrives: {}", flight.request)
        self.receive(world, flight.client, flight.part, flight.request, answer, fresh=not flight.stale)

    def disown(self, world: World, number: int, parts: tuple[Part, ...]) -> None:
        """Let go of what a client does not wait for any more: requests go on, answers are not heard."""
        world.flights = tuple(
            flight._replace(awaited=False) if flight.client == number and flight.part in parts else flight
            for flight in world.flights
            if flight.answer is None or flight.client != number or flight.part not in parts
        )

    def _wanted(self, actor: Actor, part: Part) -> Request[Any]:
        wanted = actor.renewing if part == "keeper" else actor.play.step if actor.play else None
        assert isinstance(wanted, Request)
        return wanted


def _without(flights: tuple[Flight, ...], flight: Flight) -> tuple[Flight, ...]:
    return tuple(each for each in flights if each is not flight)
